//! Types of the configuration layer that appear in the public API: log levels, print flags, socket address.

use super::from_raw;
use std::ffi::{c_char, c_uint};

/// How much is logged, most urgent first.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_log_level {
    /// The process ends.
    UCS_LOG_LEVEL_FATAL,
    /// An operation failed.
    UCS_LOG_LEVEL_ERROR,
    /// Something is wrong, work goes on.
    UCS_LOG_LEVEL_WARN,
    /// Something a site may want to change.
    UCS_LOG_LEVEL_DIAG,
    /// What the library chose.
    UCS_LOG_LEVEL_INFO,
    /// Set-up in detail.
    UCS_LOG_LEVEL_DEBUG,
    /// Set-up in more detail.
    UCS_LOG_LEVEL_TRACE,
    /// Every request.
    UCS_LOG_LEVEL_TRACE_REQ,
    /// Every message.
    UCS_LOG_LEVEL_TRACE_DATA,
    /// Every asynchronous event.
    UCS_LOG_LEVEL_TRACE_ASYNC,
    /// Every function.
    UCS_LOG_LEVEL_TRACE_FUNC,
    /// Every poll.
    UCS_LOG_LEVEL_TRACE_POLL,
    /// Number of levels.
    UCS_LOG_LEVEL_LAST,
    /// Output that was requested, whatever the level.
    UCS_LOG_LEVEL_PRINT,
}
pub use ucs_log_level::*;
/// How much is logged, most urgent first.
pub type ucs_log_level_t = ucs_log_level;

from_raw!(ucs_log_level: UCS_LOG_LEVEL_FATAL, UCS_LOG_LEVEL_ERROR, UCS_LOG_LEVEL_WARN, UCS_LOG_LEVEL_DIAG,
    UCS_LOG_LEVEL_INFO, UCS_LOG_LEVEL_DEBUG, UCS_LOG_LEVEL_TRACE, UCS_LOG_LEVEL_TRACE_REQ, UCS_LOG_LEVEL_TRACE_DATA,
    UCS_LOG_LEVEL_TRACE_ASYNC, UCS_LOG_LEVEL_TRACE_FUNC, UCS_LOG_LEVEL_TRACE_POLL, UCS_LOG_LEVEL_LAST,
    UCS_LOG_LEVEL_PRINT);

/// How asynchronous events are handled.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_async_mode {
    /// By a signal handler.
    UCS_ASYNC_MODE_SIGNAL,
    /// By a thread.
    UCS_ASYNC_MODE_THREAD,
    /// By a thread, with a mutex.
    UCS_ASYNC_MODE_THREAD_MUTEX,
    /// By the caller.
    UCS_ASYNC_MODE_POLL,
    /// Number of modes.
    UCS_ASYNC_MODE_LAST,
}
pub use ucs_async_mode::*;
/// How asynchronous events are handled.
pub type ucs_async_mode_t = ucs_async_mode;

/// By a thread, with a spin lock.
pub const UCS_ASYNC_MODE_THREAD_SPINLOCK: ucs_async_mode_t = UCS_ASYNC_MODE_THREAD;

/// No, yes, try or automatic.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_ternary_auto_value {
    /// No.
    UCS_NO = 0,
    /// Yes, or fail.
    UCS_YES = 1,
    /// Yes where possible.
    UCS_TRY = 2,
    /// The library decides.
    UCS_AUTO = 3,
    /// Number of values.
    UCS_TERNARY_LAST,
}
pub use ucs_ternary_auto_value::*;
/// No, yes, try or automatic.
pub type ucs_ternary_auto_value_t = ucs_ternary_auto_value;

/// Off, on, or as the library decides.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_on_off_auto_value {
    /// Off.
    UCS_CONFIG_OFF = 0,
    /// On.
    UCS_CONFIG_ON = 1,
    /// The library decides.
    UCS_CONFIG_AUTO = 2,
    /// Number of values.
    UCS_CONFIG_ON_OFF_LAST,
}
pub use ucs_on_off_auto_value::*;
/// Off, on, or as the library decides.
pub type ucs_on_off_auto_value_t = ucs_on_off_auto_value;

/// What happens after a fatal error.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_handle_error {
    /// Print a backtrace.
    UCS_HANDLE_ERROR_BACKTRACE,
    /// Stop and wait.
    UCS_HANDLE_ERROR_FREEZE,
    /// Attach a debugger.
    UCS_HANDLE_ERROR_DEBUG,
    /// Nothing.
    UCS_HANDLE_ERROR_NONE,
    /// Number of values.
    UCS_HANDLE_ERROR_LAST,
}
pub use ucs_handle_error::*;
/// What happens after a fatal error.
pub type ucs_handle_error_t = ucs_handle_error;

/// What `ucp_config_print` prints.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_config_print_flags {
    /// Names and values.
    UCS_CONFIG_PRINT_CONFIG = 1 << 0,
    /// The title.
    UCS_CONFIG_PRINT_HEADER = 1 << 1,
    /// The description of each option.
    UCS_CONFIG_PRINT_DOC = 1 << 2,
    /// Options that are not usually shown.
    UCS_CONFIG_PRINT_HIDDEN = 1 << 3,
    /// Options left at their default, as comments.
    UCS_CONFIG_PRINT_COMMENT_DEFAULT = 1 << 4,
}
pub use ucs_config_print_flags::*;
/// What `ucp_config_print` prints.
pub type ucs_config_print_flags_t = ucs_config_print_flags;

/// Meaning of a list of names.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_config_allow_list_mode {
    /// Everything.
    UCS_CONFIG_ALLOW_LIST_ALLOW_ALL,
    /// The names in the list.
    UCS_CONFIG_ALLOW_LIST_ALLOW,
    /// All but the names in the list.
    UCS_CONFIG_ALLOW_LIST_NEGATE,
}
pub use ucs_config_allow_list_mode::*;
/// Meaning of a list of names.
pub type ucs_config_allow_list_mode_t = ucs_config_allow_list_mode;

/// A list of names.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucs_config_names_array {
    /// The names.
    pub names: *mut *mut c_char,
    /// How many there are.
    pub count: c_uint,
    /// Whether some were left off.
    pub truncated: c_uint,
}
/// A list of names.
pub type ucs_config_names_array_t = ucs_config_names_array;

/// A list of names and its meaning.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucs_config_allow_list {
    /// The names.
    pub array: ucs_config_names_array_t,
    /// Its meaning.
    pub mode: ucs_config_allow_list_mode_t,
}
/// A list of names and its meaning.
pub type ucs_config_allow_list_t = ucs_config_allow_list;

/// A socket address and its length.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucs_sock_addr {
    /// The address.
    pub addr: *const libc::sockaddr,
    /// Its length in bytes.
    pub addrlen: libc::socklen_t,
}
/// A socket address and its length.
pub type ucs_sock_addr_t = ucs_sock_addr;

/// How one part of a program logs.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ucs_log_component_config {
    /// Up to this level.
    pub log_level: ucs_log_level_t,
    /// Its name.
    pub name: [c_char; 16],
    /// Only source files that match this pattern.
    pub file_filter: *const c_char,
}
/// How one part of a program logs.
pub type ucs_log_component_config_t = ucs_log_component_config;

const _: () = {
    assert!(size_of::<ucs_sock_addr>() == 16);
    assert!(size_of::<ucs_log_component_config>() == 32);
};
