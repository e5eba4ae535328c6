//! Bytes on the wire: message headers, worker address, packed rkey. Pure.
