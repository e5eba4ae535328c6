//! The time that copies take, as their stream measures it: whether or not the program progresses meanwhile.

use super::track::Track;
use crate::sys::cuda::{Cuda, CudaError, Event};
use std::time::Duration;

/// Two marks in a stream, and the time between them.
pub(super) struct CopyTimer {
    start: Event,
    end: Event,
}

impl CopyTimer {
    /// The context of the stream is current.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(cuda: &Cuda) -> Result<CopyTimer, CudaError> {
        let start = cuda.timed_event()?;
        match cuda.timed_event() {
            Ok(end) => Ok(CopyTimer { start, end }),
            Err(e) => {
                cuda.destroy_event(start);
                Err(e)
            }
        }
    }

    /// Marks the beginning of what is measured.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn begin(&self, cuda: &Cuda, track: &Track) -> Result<(), CudaError> {
        cuda.record(&self.start, &track.stream)
    }

    /// Marks its end.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn end(&self, cuda: &Cuda, track: &Track) -> Result<(), CudaError> {
        cuda.record(&self.end, &track.stream)
    }

    /// Waits until the stream has passed the end.
    ///
    /// # Errors
    /// The first error of what it has done before.
    pub fn wait(&self, cuda: &Cuda) -> Result<(), CudaError> {
        cuda.wait(&self.end)
    }

    /// The time between the marks, which the stream has passed. `None`: the driver does not say.
    pub fn elapsed(&self, cuda: &Cuda) -> Option<Duration> {
        cuda.elapsed(&self.start, &self.end)
    }

    /// Ends the marks.
    pub fn destroy(self, cuda: &Cuda) {
        cuda.destroy_event(self.start);
        cuda.destroy_event(self.end);
    }
}
