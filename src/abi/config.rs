//! `ucp_config_*`: the options of a context, as C reads, changes and prints them.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::mem::MaybeUninit;

use crate::ctypes::*;
use crate::options::{OptionError, Options, PrintFlags, glob};
use crate::sys::{loaded_from, log};

/// The options behind a handle.
///
/// # Safety
/// `config` is from `ucp_config_read` and not released; the options are not changed while the reference lives.
pub unsafe fn options_of<'a>(config: *const ucp_config_t) -> &'a Options {
    // SAFETY: the handle points to the options that `ucp_config_read` boxed.
    unsafe { &*config.cast::<Options>() }
}

/// Reads the options for `ucp_config_read`, and for `ucp_init` without a configuration. A wrong value is logged.
pub fn read_options(env_prefix: Option<&str>) -> Result<Options, ucs_status_t> {
    loaded_from::set_library_dir();
    match Options::read(env_prefix) {
        Ok(options) => {
            log::configure(&options);
            Ok(options)
        }
        Err(error) => {
            log::error!("{error}");
            Err(UCS_ERR_INVALID_PARAM)
        }
    }
}

/// Reads the options from files and from the environment. `filename` has no meaning, as in UCX.
///
/// # Safety
/// `env_prefix` is NULL or a C string; `config_p` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_config_read(
    env_prefix: *const c_char,
    filename: *const c_char,
    config_p: *mut *mut ucp_config_t,
) -> ucs_status_t {
    let _ = filename;
    if config_p.is_null() {
        return UCS_ERR_INVALID_PARAM;
    }
    // SAFETY: the caller passes NULL or a C string.
    let prefix = unsafe { text_of(env_prefix) };
    match read_options(prefix.as_deref()) {
        Ok(options) => {
            // SAFETY: not NULL, checked above, and writable, as the caller promises.
            unsafe { config_p.write(Box::into_raw(Box::new(options)).cast()) };
            UCS_OK
        }
        Err(status) => status,
    }
}

/// Releases the options; contexts made from them keep their own.
///
/// # Safety
/// `config` is NULL or from `ucp_config_read`, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_config_release(config: *mut ucp_config_t) {
    if !config.is_null() {
        // SAFETY: the handle is the box that `ucp_config_read` made, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(config.cast::<Options>()) });
    }
}

/// Sets an option, by its name without `UCX_`, or all that a pattern matches.
///
/// # Safety
/// `config` is from `ucp_config_read`; `name` and `value` are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_config_modify(
    config: *mut ucp_config_t,
    name: *const c_char,
    value: *const c_char,
) -> ucs_status_t {
    // SAFETY: the caller passes NULL or C strings.
    let (name, value) = unsafe { (text_of(name), text_of(value)) };
    let (false, Some(name), Some(value)) = (config.is_null(), name, value) else {
        return UCS_ERR_INVALID_PARAM;
    };
    // SAFETY: the handle points to the options that `ucp_config_read` boxed; C promises no concurrent use.
    let options = unsafe { &mut *config.cast::<Options>() };
    match options.modify(&name, &value) {
        Ok(()) => {
            // The level is that of the process, as in UCX.
            if glob(&name, "LOG_LEVEL") {
                log::set_level(options.log_level);
            }
            UCS_OK
        }
        // UCX returns the same without a message: programs try names that only some versions have.
        Err(error @ (OptionError::Unknown(_) | OptionError::Fixed(_))) => {
            log::debug!("{error}");
            UCS_ERR_INVALID_PARAM
        }
        Err(error) => {
            log::error!("{error}");
            UCS_ERR_INVALID_PARAM
        }
    }
}

/// Prints options to a C stream.
///
/// # Safety
/// `config` is from `ucp_config_read`; `stream` is open for writing; `title` is NULL or a C string;
/// `print_flags` is initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_config_print(
    config: *const ucp_config_t,
    stream: *mut libc::FILE,
    title: *const c_char,
    print_flags: MaybeUninit<ucs_config_print_flags_t>,
) {
    if config.is_null() || stream.is_null() {
        return;
    }
    // SAFETY: an argument is always initialised; any combination of bits is a u32.
    let flags = print_flags_of(unsafe { enum_raw(print_flags) });
    // SAFETY: the caller passes NULL or a C string.
    let title = unsafe { text_of(title) }.unwrap_or_default();
    // SAFETY: the handle is alive for this call.
    let options = unsafe { options_of(config) };
    // A failed write is reported by ferror.
    let _ = options.print(&mut Stream(stream), &title, flags);
}

fn print_flags_of(bits: u32) -> PrintFlags {
    let has = |flag: ucs_config_print_flags_t| bits & flag as u32 != 0;
    PrintFlags {
        config: has(UCS_CONFIG_PRINT_CONFIG),
        header: has(UCS_CONFIG_PRINT_HEADER),
        doc: has(UCS_CONFIG_PRINT_DOC),
        hidden: has(UCS_CONFIG_PRINT_HIDDEN),
        comment_default: has(UCS_CONFIG_PRINT_COMMENT_DEFAULT),
    }
}

/// A C stream of the caller, open for writing.
struct Stream(*mut libc::FILE);

impl fmt::Write for Stream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the pointer and the length are those of a string; the C caller promises that the stream is open.
        let written = unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), self.0) };
        if written == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// A C string as text; with bytes that are not UTF-8 it matches no name and no value.
///
/// # Safety
/// `text` is NULL or a C string.
unsafe fn text_of(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read() -> *mut ucp_config_t {
        let mut config = std::ptr::null_mut();
        // SAFETY: a NULL prefix is allowed, the handle can be written.
        let status = unsafe { ucp_config_read(std::ptr::null(), std::ptr::null(), &mut config) };
        assert_eq!(status, UCS_OK);
        config
    }

    fn modify(config: *mut ucp_config_t, name: &CStr, value: &CStr) -> ucs_status_t {
        // SAFETY: the handle is alive, both are C strings.
        unsafe { ucp_config_modify(config, name.as_ptr(), value.as_ptr()) }
    }

    fn release(config: *mut ucp_config_t) {
        // SAFETY: the handle is alive and not used again.
        unsafe { ucp_config_release(config) };
    }

    #[test]
    fn modify_takes_names_without_prefix() {
        let config = read();
        assert_eq!(modify(config, c"TLS", c"tcp"), UCS_OK);
        assert_eq!(modify(config, c"UCX_TLS", c"tcp"), UCS_ERR_INVALID_PARAM);
        assert_eq!(modify(config, c"NOSUCH", c"1"), UCS_ERR_INVALID_PARAM);
        assert_eq!(modify(config, c"RNDV_THRESH", c"zz"), UCS_ERR_INVALID_PARAM);
        assert_eq!(modify(config, c"MM_SEG_SIZE", c"1k"), UCS_OK);
        // SAFETY: the handle is alive, and not changed concurrently.
        let options = unsafe { options_of(config) };
        assert!(options.tls.allows("tcp") && !options.tls.allows("self"));
        assert_eq!(options.get("POSIX_SEG_SIZE").as_deref(), Some("1K"));
        release(config);
    }

    #[test]
    fn null_is_refused() {
        let null = std::ptr::null();
        // SAFETY: NULL is a valid argument: it is what is tested.
        unsafe {
            assert_eq!(
                ucp_config_read(null, null, std::ptr::null_mut()),
                UCS_ERR_INVALID_PARAM
            );
            assert_eq!(
                ucp_config_modify(std::ptr::null_mut(), c"TLS".as_ptr(), c"x".as_ptr()),
                UCS_ERR_INVALID_PARAM
            );
        }
        let config = read();
        // SAFETY: the handle is alive; NULL is a valid argument.
        unsafe { assert_eq!(ucp_config_modify(config, null, null), UCS_ERR_INVALID_PARAM) };
        release(config);
        release(std::ptr::null_mut());
    }

    #[test]
    fn print_writes_to_the_stream() {
        let config = read();
        assert_eq!(modify(config, c"NUM_EPS", c"5"), UCS_OK);
        // SAFETY: the stream is opened, used, measured and closed here; the buffer is as long as is read.
        let text = unsafe {
            let stream = libc::tmpfile();
            assert!(!stream.is_null());
            let flags = std::mem::transmute::<u32, MaybeUninit<ucs_config_print_flags_t>>(3);
            ucp_config_print(config, stream, c"a title".as_ptr(), flags);
            let mut text = vec![0u8; libc::ftell(stream) as usize];
            libc::rewind(stream);
            assert_eq!(
                libc::fread(text.as_mut_ptr().cast(), 1, text.len(), stream),
                text.len()
            );
            libc::fclose(stream);
            String::from_utf8(text).expect("options are text")
        };
        assert!(
            text.starts_with("#\n# a title\n#\n\nUCX_NET_DEVICES=all\n"),
            "{text}"
        );
        assert!(text.contains("\nUCX_NUM_EPS=5\n"), "{text}");
        release(config);
    }
}
