//! Options: `NAME=value` a line through the parser of values, and the whole as a ucx.conf.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ucp::engine::policy::Policy;
use ucp::options::{Options, file_entries, glob};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut options = Options::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        if options.set(name, value).is_ok() {
            // An accepted value is kept in a spelling that decodes to the same.
            if let Some(kept) = options.get(name) {
                let mut again = Options::default();
                assert_eq!(
                    again.set(name, &kept),
                    Ok(()),
                    "{name}: {value:?} became {kept:?}"
                );
                assert_eq!(
                    again.get(name).as_deref(),
                    Some(kept.as_str()),
                    "{name}: {value:?}"
                );
            }
        }
        glob(name, value);
    }
    // Contexts are created with any options; warnings are no failures.
    let _ = options.set("WARN_INVALID_CONFIG", "n");
    let _ = Policy::new(&options);
    for (name, value) in file_entries(&text) {
        let _ = options.set(&name, &value);
    }
});
