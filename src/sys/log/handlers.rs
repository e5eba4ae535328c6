//! The stack of handlers that log lines pass, the last one pushed first; the one that prints is at the bottom.
//!
//! No lock: a process may fork while another thread logs, and a handler may push and pop.

use crate::ctypes::*;
use crate::sys::arch;
use std::ffi::{CString, c_char, c_uint};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Most handlers, as in UCX; further ones are ignored.
const MAX_HANDLERS: usize = 32;

/// Its address identifies the handler that prints.
static PRINTER: u8 = 0;

/// Handlers from the bottom to the top, NULL where there is none. Release stores of [`push`] are seen by the acquire
/// loads of [`pass`].
static HANDLERS: [AtomicPtr<u8>; MAX_HANDLERS] = {
    let mut handlers = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_HANDLERS];
    handlers[0] = AtomicPtr::new((&raw const PRINTER).cast_mut());
    handlers
};

/// One line as handlers get it.
pub struct LogLine {
    pub file: *const c_char,
    pub line: c_uint,
    pub function: *const c_char,
    pub level: MaybeUninit<ucs_log_level_t>,
    pub component: *const ucs_log_component_config_t,
    pub format: *const c_char,
    /// NULL where the format has no arguments.
    pub args: va_list,
}

/// Whether lines pass no handler but the one that prints.
pub fn only_printer() -> bool {
    // Acquire: pairs with the release of `push`.
    HANDLERS[1].load(Ordering::Acquire).is_null()
        && HANDLERS[0].load(Ordering::Acquire) == (&raw const PRINTER).cast_mut()
}

/// Adds a handler on top; does nothing when there are too many.
pub fn push(handler: ucs_log_func_t) {
    let Some(handler) = handler else { return };
    let handler = handler as *mut u8;
    for slot in &HANDLERS {
        // Release: pairs with the acquire of `pass`, which calls the handler.
        if slot
            .compare_exchange(
                ptr::null_mut(),
                handler,
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
        {
            return;
        }
    }
}

/// Removes the handler on top, even the one that prints.
pub fn pop() {
    for slot in HANDLERS.iter().rev() {
        // Relaxed: nothing is read through the pointer.
        let handler = slot.load(Ordering::Relaxed);
        if !handler.is_null()
            && slot
                .compare_exchange(
                    handler,
                    ptr::null_mut(),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
        {
            return;
        }
    }
}

/// Number of handlers.
pub fn count() -> usize {
    HANDLERS
        .iter()
        // Relaxed: nothing is read through the pointer.
        .filter(|slot| !slot.load(Ordering::Relaxed).is_null())
        .count()
}

/// Passes a line from handler to handler until one stops it; `print` is the one at the bottom.
///
/// # Safety
/// The pointers of the line lead to terminated texts and a component; the arguments are those of the format.
pub unsafe fn pass(line: &LogLine, print: impl FnOnce()) {
    for slot in HANDLERS.iter().rev() {
        // Acquire: pairs with the release of `push`.
        let handler = slot.load(Ordering::Acquire);
        if handler.is_null() {
            continue;
        }
        if handler == (&raw const PRINTER).cast_mut() {
            print();
            return;
        }
        // SAFETY: a pointer that is neither NULL nor the printer's was stored by `push`, from a function of this type.
        let handler: ucs_log_func_t = unsafe { std::mem::transmute(handler) };
        let Some(handler) = handler else { continue };
        // SAFETY: the caller vouches for the list; each handler has a copy, because reading it uses it up.
        let mut args = unsafe { arch::copy_list(line.args) };
        // SAFETY: the caller's promise about the line.
        let answer = unsafe {
            handler(
                line.file,
                line.line,
                line.function,
                line.level,
                line.component,
                line.format,
                args.as_mut_ptr().cast(),
            )
        };
        // SAFETY: a value that C returned is initialised.
        if unsafe { enum_raw(answer) } == UCS_LOG_FUNC_RC_STOP as u32 {
            return;
        }
    }
}

/// Passes a line of the library to the handlers. `enabled` is the level up to which the library logs.
pub fn pass_own(
    level: ucs_log_level_t,
    enabled: ucs_log_level_t,
    file: &str,
    line: u32,
    message: fmt::Arguments<'_>,
    print: impl FnOnce(),
) {
    let text = |text: String| CString::new(text.replace('\0', "")).unwrap_or_default();
    let file = text(file.rsplit('/').next().unwrap_or(file).to_owned());
    // Handlers take a format: without conversions it needs no arguments.
    let format = text(message.to_string().replace('%', "%%"));
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().zip(c"UCX".to_bytes()) {
        *to = *from as c_char;
    }
    let component = ucs_log_component_config_t {
        log_level: enabled,
        name,
        file_filter: c"*".as_ptr(),
    };
    let line = LogLine {
        file: file.as_ptr(),
        line,
        function: c"rucp".as_ptr(),
        level: MaybeUninit::new(level),
        component: &raw const component,
        format: format.as_ptr(),
        args: ptr::null_mut(),
    };
    // SAFETY: texts and component live on this function's stack; a format without conversions has no arguments.
    unsafe { pass(&line, print) };
}
