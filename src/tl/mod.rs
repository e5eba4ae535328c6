//! Transports: how bytes get from one worker to another. They know nothing of matching or requests.

pub mod shm;
pub mod tcp;
