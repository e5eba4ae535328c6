//! Patterns of names.

/// Whether `text` matches a pattern of the shell: `*`, `?`, `[a-z]`, `[!a-z]`.
pub fn glob(pattern: &str, text: &str) -> bool {
    glob::Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, matches) in [
            ("milan", "milan", true),
            ("mil", "milan", false),
            ("*", "", true),
            ("m*a?", "milan", true),
            ("*a*a*", "banana", true),
            ("?", "", false),
            ("a*b", "acbd", false),
            ("m[a-i]lan", "milan", true),
            ("m[!a-i]lan", "milan", false),
            ("m[", "milan", false),
        ] {
            assert_eq!(glob(pattern, text), matches, "{pattern} {text}");
        }
    }
}
