//! Streams of one operation.

use crate::sys::cuda::{CuContext, Cuda, CudaError, Event, Stream};

/// A stream of one context, and events for it that are not in use. Returned to the context's list after the operation.
pub struct Track {
    /// The device's context, current in all calls.
    pub ctx: CuContext,
    /// The context's identity, if it has one: its handle may be that of a later one, which has no such stream.
    pub id: Option<u64>,
    pub stream: Stream,
    events: Vec<Event>,
}

// SAFETY: the driver's handles belong to the process.
unsafe impl Send for Track {}

impl Track {
    /// A new stream.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(cuda: &Cuda, ctx: CuContext) -> Result<Track, CudaError> {
        let _current = cuda.enter(ctx)?;
        Ok(Track {
            ctx,
            id: cuda.context_id(ctx),
            stream: cuda.stream()?,
            events: Vec::new(),
        })
    }

    /// Marks the end of what the stream has been given. The context is current.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn record_event(&mut self, cuda: &Cuda) -> Result<Event, CudaError> {
        let event = match self.events.pop() {
            Some(event) => event,
            None => cuda.event()?,
        };
        let recorded = cuda.record(&event, &self.stream);
        match recorded {
            Ok(()) => Ok(event),
            Err(e) => {
                self.events.push(event);
                Err(e)
            }
        }
    }

    /// Waits for a mark.
    ///
    /// # Errors
    /// The first error of the copies before it.
    pub fn wait(&mut self, cuda: &Cuda, event: Event) -> Result<(), CudaError> {
        let passed = cuda.wait(&event);
        self.events.push(event);
        passed
    }

    /// Takes back a mark that the stream has passed.
    pub fn put_back(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Waits for everything that the stream has been given.
    ///
    /// # Errors
    /// The first error of the copies.
    pub fn drain(&self, cuda: &Cuda) -> Result<(), CudaError> {
        let _current = cuda.enter(self.ctx)?;
        cuda.synchronize(&self.stream)
    }

    /// Ends stream and events.
    pub fn destroy(self, cuda: &Cuda) {
        // A context that is gone has taken them along.
        if let Ok(_current) = cuda.enter(self.ctx) {
            for event in self.events {
                cuda.destroy_event(event);
            }
            cuda.destroy_stream(self.stream);
        }
    }
}
