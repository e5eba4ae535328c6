//! Streams and events: copies that the driver does in order, and when they have ended.

use super::api::Cuda;
use super::driver::{
    CuEvent, CuResult, CuStream, EVENT_DEFAULT, EVENT_DISABLE_TIMING, NOT_READY,
    STREAM_NON_BLOCKING,
};
use super::error::CudaError;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// A stream of the context that was current when it was created, on which nothing of the program waits.
#[derive(Debug)]
pub struct Stream(CuStream);

/// Marks a place in a stream.
#[derive(Debug)]
pub struct Event(CuEvent);

// SAFETY: the driver's handles belong to the process.
unsafe impl Send for Stream {}
// SAFETY: the driver's handles belong to the process.
unsafe impl Send for Event {}

/// What a stream calls, in a thread of the driver, which may not call the driver.
pub trait StreamCallback: Send + Sync {
    /// The stream has come here, or its context has failed.
    fn reached(&self);
}

impl Stream {
    /// The driver's handle.
    pub(super) fn handle(&self) -> CuStream {
        self.0
    }
}

impl Cuda {
    /// A stream of the current context.
    ///
    /// # Errors
    /// Those of `cuStreamCreate`.
    pub fn stream(&self) -> Result<Stream, CudaError> {
        let mut stream = ptr::null_mut();
        // SAFETY: a place for the handle.
        let made =
            unsafe { (self.functions().stream_create)(&raw mut stream, STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", made)?;
        Ok(Stream(stream))
    }

    /// An event of the current context.
    ///
    /// # Errors
    /// Those of `cuEventCreate`.
    pub fn event(&self) -> Result<Event, CudaError> {
        self.event_with(EVENT_DISABLE_TIMING)
    }

    /// An event of the current context that remembers when its stream has passed it.
    ///
    /// # Errors
    /// Those of `cuEventCreate`.
    pub fn timed_event(&self) -> Result<Event, CudaError> {
        self.event_with(EVENT_DEFAULT)
    }

    fn event_with(&self, flags: u32) -> Result<Event, CudaError> {
        let mut event = ptr::null_mut();
        // SAFETY: a place for the handle.
        let made = unsafe { (self.functions().event_create)(&raw mut event, flags) };
        self.check("cuEventCreate", made)?;
        Ok(Event(event))
    }

    /// Time between two timed events that a stream has passed. Their context is current. `None`: the driver does not
    /// know it.
    pub fn elapsed(&self, start: &Event, end: &Event) -> Option<Duration> {
        let mut milliseconds = 0.0;
        // SAFETY: a place for the time, and two events that are not destroyed.
        let read = unsafe {
            (self.functions().event_elapsed_time?)(&raw mut milliseconds, start.0, end.0)
        };
        let seconds = f64::from(milliseconds) / 1e3;
        (read == 0).then(|| Duration::try_from_secs_f64(seconds).ok())?
    }

    /// Begins to copy `len` bytes, from and to any memory of this process. The stream's context is current.
    ///
    /// # Errors
    /// Those of `cuMemcpyAsync`.
    ///
    /// # Safety
    /// Memory of the host in the two ranges is valid, and nothing else changes it, until the copy has ended.
    pub unsafe fn copy(
        &self,
        to: u64,
        from: u64,
        len: usize,
        stream: &Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise; the driver checks addresses of devices.
        let begun = unsafe { (self.functions().memcpy_async)(to, from, len, stream.0) };
        self.check("cuMemcpyAsync", begun)
    }

    /// Waits until the stream has done all that it was given. Its context is current.
    ///
    /// # Errors
    /// The first error of what it has done.
    pub fn synchronize(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: a stream that is not destroyed.
        let done = unsafe { (self.functions().stream_synchronize)(stream.0) };
        self.check("cuStreamSynchronize", done)
    }

    /// Marks the present end of a stream. The context of both is current.
    ///
    /// # Errors
    /// Those of `cuEventRecord`.
    pub fn record(&self, event: &Event, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: an event and a stream that are not destroyed.
        let recorded = unsafe { (self.functions().event_record)(event.0, stream.0) };
        self.check("cuEventRecord", recorded)
    }

    /// Whether a stream has passed the mark. The event's context is current.
    ///
    /// # Errors
    /// The first error of what the stream has done before.
    pub fn has_passed(&self, event: &Event) -> Result<bool, CudaError> {
        // SAFETY: an event that is not destroyed.
        match unsafe { (self.functions().event_query)(event.0) } {
            NOT_READY => Ok(false),
            result => self.check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Has `callback` called when the stream has done all that it was given up to now, also after a failure: not by
    /// `cuLaunchHostFunc`, whose function is not called then. The stream's context is current.
    ///
    /// # Errors
    /// Those of `cuStreamAddCallback`: it is not called.
    pub fn call_back<T: StreamCallback>(
        &self,
        stream: &Stream,
        callback: &Arc<T>,
    ) -> Result<(), CudaError> {
        /// Calls the object, and drops the stream's reference to it.
        unsafe extern "C" fn call<T: StreamCallback>(_: CuStream, _: CuResult, data: *mut c_void) {
            // SAFETY: a counted reference, which was made for this call.
            unsafe { Arc::from_raw(data.cast_const().cast::<T>()) }.reached();
        }
        let call_name = "cuStreamAddCallback";
        let Some(add) = self.functions().stream_add_callback else {
            return Err(self.unsupported(call_name));
        };
        let data = Arc::into_raw(Arc::clone(callback));
        // SAFETY: a stream that is not destroyed; the function gets its own reference, once.
        let added = unsafe { add(stream.0, call::<T>, data.cast_mut().cast(), 0) };
        self.check(call_name, added).inspect_err(|_| {
            // SAFETY: made in this call, and not given away.
            drop(unsafe { Arc::from_raw(data) });
        })
    }

    /// Waits until a stream has passed the mark.
    ///
    /// # Errors
    /// The first error of what the stream has done before.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: an event that is not destroyed.
        let passed = unsafe { (self.functions().event_synchronize)(event.0) };
        self.check("cuEventSynchronize", passed)
    }

    /// Ends a stream. Its context is current; an error means that it is gone with its context.
    pub fn destroy_stream(&self, stream: Stream) {
        // SAFETY: a stream that is not used any more.
        let _ = unsafe { (self.functions().stream_destroy)(stream.0) };
    }

    /// Ends an event. Its context is current; an error means that it is gone with its context.
    pub fn destroy_event(&self, event: Event) {
        // SAFETY: an event that is not used any more.
        let _ = unsafe { (self.functions().event_destroy)(event.0) };
    }
}
