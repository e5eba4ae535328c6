//! The part of UCT that clients call before they find that there is no component.

use std::ffi::{c_char, c_uint};

/// Longest name of a component.
pub const UCT_COMPONENT_NAME_MAX: usize = 16;
/// Longest name of a memory domain.
pub const UCT_MD_NAME_MAX: usize = 16;
/// Longest name of a transport.
pub const UCT_TL_NAME_MAX: usize = 10;
/// Longest name of a device.
pub const UCT_DEVICE_NAME_MAX: usize = 32;

/// A transport component; there is none.
/// cbindgen:no-export
#[repr(C)]
pub struct uct_component {
    _private: [u8; 0],
}
/// A transport component; there is none.
pub type uct_component_h = *mut uct_component;

/// A memory domain; there is none.
/// cbindgen:no-export
#[repr(C)]
pub struct uct_md {
    _private: [u8; 0],
}
/// A memory domain; there is none.
pub type uct_md_h = *mut uct_md;

/// Options of a memory domain.
/// cbindgen:no-export
#[repr(C)]
pub struct uct_md_config {
    _private: [u8; 0],
}
/// Options of a memory domain.
pub type uct_md_config_t = uct_md_config;

/// A memory domain of a component.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct uct_md_resource_desc {
    /// Its name.
    pub md_name: [c_char; UCT_MD_NAME_MAX],
}
/// A memory domain of a component.
pub type uct_md_resource_desc_t = uct_md_resource_desc;

/// Which fields of `uct_component_attr_t` are requested.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum uct_component_attr_field {
    /// `name`
    UCT_COMPONENT_ATTR_FIELD_NAME = 1 << 0,
    /// `md_resource_count`
    UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT = 1 << 1,
    /// `md_resources`
    UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES = 1 << 2,
    /// `flags`
    UCT_COMPONENT_ATTR_FIELD_FLAGS = 1 << 3,
}
pub use uct_component_attr_field::*;

/// Attributes of a component.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct uct_component_attr {
    /// Which fields are requested, from `uct_component_attr_field`.
    pub field_mask: u64,
    /// Its name.
    pub name: [c_char; UCT_COMPONENT_NAME_MAX],
    /// How many memory domains it has.
    pub md_resource_count: c_uint,
    /// The caller's array for them.
    pub md_resources: *mut uct_md_resource_desc_t,
    /// What it can do.
    pub flags: u64,
}
/// Attributes of a component.
pub type uct_component_attr_t = uct_component_attr;

/// Kinds of device.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum uct_device_type {
    /// A network.
    UCT_DEVICE_TYPE_NET,
    /// Shared memory.
    UCT_DEVICE_TYPE_SHM,
    /// An accelerator.
    UCT_DEVICE_TYPE_ACC,
    /// The process itself.
    UCT_DEVICE_TYPE_SELF,
    /// Number of kinds.
    UCT_DEVICE_TYPE_LAST,
}
pub use uct_device_type::*;
/// Kinds of device.
pub type uct_device_type_t = uct_device_type;

/// A transport of a memory domain.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct uct_tl_resource_desc {
    /// Its name.
    pub tl_name: [c_char; UCT_TL_NAME_MAX],
    /// The device it uses.
    pub dev_name: [c_char; UCT_DEVICE_NAME_MAX],
    /// Kind of that device.
    pub dev_type: uct_device_type_t,
    /// Number of that device on this machine.
    pub sys_device: u8,
}
/// A transport of a memory domain.
pub type uct_tl_resource_desc_t = uct_tl_resource_desc;
