//! The little of UCT that clients ask before they find that there is no component.

/// A transport component; there is none.
#[repr(C)]
pub struct uct_component {
    _private: [u8; 0],
}
/// A transport component; there is none.
pub type uct_component_h = *mut uct_component;
