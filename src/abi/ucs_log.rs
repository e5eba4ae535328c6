//! The log as clients of libucs use it: lines of their own, and handlers that get every line.

use crate::ctypes::*;
use crate::sys::arch::variadic;
use crate::sys::log::{self, handlers};
use crate::sys::other_ucx;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::mem::MaybeUninit;

/// Adds a handler, which gets each line of the log ahead of those added earlier and of the one that prints.
///
/// A genuine libucs adds its own one that prints when it is loaded: this library's stands for it, or each line would
/// appear twice.
#[unsafe(no_mangle)]
pub extern "C" fn ucs_log_push_handler(handler: ucs_log_func_t) {
    if !handler.is_some_and(|handler| other_ucx::prints(handler as usize)) {
        handlers::push(handler);
    }
}

/// Takes the handler away that was added last; without any, nothing is printed.
#[unsafe(no_mangle)]
pub extern "C" fn ucs_log_pop_handler() {
    handlers::pop();
}

/// How many handlers there are, the one that prints among them.
#[unsafe(no_mangle)]
pub extern "C" fn ucs_log_num_handlers() -> c_uint {
    handlers::count() as c_uint
}

/// Name of a log level in a line of the log.
fn level_name(level: u32) -> &'static str {
    const NAMES: [&str; 12] = [
        "FATAL", "ERROR", "WARN", "DIAG", "INFO", "DEBUG", "TRACE", "REQ", "DATA", "ASYNC", "FUNC",
        "POLL",
    ];
    NAMES.get(level as usize).copied().unwrap_or("PRINT")
}

/// Prints a line of a client's, unless its component logs less.
///
/// # Safety
/// The pointers of the line are NULL or lead to terminated texts and a component; the arguments are those of the
/// format.
unsafe fn print(line: &handlers::LogLine) {
    unsafe extern "C" {
        fn vsnprintf(text: *mut c_char, size: usize, format: *const c_char, args: va_list)
        -> c_int;
    }
    // SAFETY: the caller's component.
    let component = unsafe { line.component.as_ref() };
    // SAFETY: a level that C passed is initialised.
    let level = unsafe { enum_raw(line.level) };
    if component.is_some_and(|of| level > of.log_level as u32)
        && level != UCS_LOG_LEVEL_PRINT as u32
    {
        return;
    }
    let mut text: [c_char; 1024] = [0; 1024];
    // SAFETY: the caller vouches for format and arguments; the text is cut to the array and terminated.
    let message = unsafe {
        if line.args.is_null() {
            CStr::from_ptr(line.format)
        } else {
            vsnprintf(text.as_mut_ptr(), text.len(), line.format, line.args);
            CStr::from_ptr(text.as_ptr())
        }
    };
    let file = if line.file.is_null() {
        c"?"
    } else {
        // SAFETY: a file name is a literal of the client.
        unsafe { CStr::from_ptr(line.file) }
    };
    let name = match component {
        None => "UCX".into(),
        // SAFETY: the client's component has a terminated name.
        Some(of) => unsafe { CStr::from_ptr(of.name.as_ptr()) }.to_string_lossy(),
    };
    let (file, message) = (file.to_string_lossy(), message.to_string_lossy());
    log::dispatch_client(&name, level_name(level), &file, line.line, &message);
}

/// Hands a line of a client's to the handlers.
///
/// # Safety
/// As of [`print()`].
unsafe fn hand_over(line: &handlers::LogLine) {
    // SAFETY: the caller's line.
    let print = || unsafe { print(line) };
    if !line.args.is_null() {
        // SAFETY: the caller's line.
        return unsafe { handlers::pass(line, print) };
    }
    // SAFETY: the caller's format is terminated.
    let text = unsafe { CStr::from_ptr(line.format) }.to_string_lossy();
    // What the arguments are is not known here: a format that has no conversions needs none.
    let format = CString::new(text.replace('%', "%%")).unwrap_or_default();
    let line = handlers::LogLine {
        format: format.as_ptr(),
        ..*line
    };
    // SAFETY: the caller's line, with a format that lives until this function returns.
    unsafe { handlers::pass(&line, print) }
}

variadic! {
    /// Hands one line of a client's log to the handlers (C: `..., const char *format, ...`).
    ///
    /// # Safety
    /// As printf.
    pub unsafe fn ucs_log_dispatch(
        file: *const c_char,
        line: c_uint,
        function: *const c_char,
        level: MaybeUninit<ucs_log_level_t>,
        component: *mut ucs_log_component_config_t,
        format: *const c_char,
    ) with args {
        if format.is_null() {
            return;
        }
        let line = handlers::LogLine { file, line, function, level, component, format, args };
        // SAFETY: the caller keeps printf's contract; the list, if there is one, points to the further arguments.
        unsafe { hand_over(&line) }
    }
}
