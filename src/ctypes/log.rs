//! Handlers of log lines.

use super::{ucs_log_component_config_t, ucs_log_level_t, va_list};
use std::ffi::{c_char, c_uint};
use std::mem::MaybeUninit;

/// Result of a handler of log lines.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucs_log_func_rc {
    /// No further handler gets the line.
    UCS_LOG_FUNC_RC_STOP,
    /// The handler pushed before this one gets the line, too.
    UCS_LOG_FUNC_RC_CONTINUE,
}
pub use ucs_log_func_rc::*;
/// Result of a handler of log lines.
pub type ucs_log_func_rc_t = ucs_log_func_rc;

/// A handler of log lines; `message` is a printf format, `ap` has its arguments.
pub type ucs_log_func_t = Option<
    unsafe extern "C" fn(
        file: *const c_char,
        line: c_uint,
        function: *const c_char,
        level: MaybeUninit<ucs_log_level_t>,
        comp_conf: *const ucs_log_component_config_t,
        message: *const c_char,
        ap: va_list,
    ) -> MaybeUninit<ucs_log_func_rc_t>,
>;
