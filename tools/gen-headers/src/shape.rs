//! Gives declarations of cbindgen the forms that UCX's headers have and cbindgen does not write: types without a tag,
//! members of a nameless union, enums of one byte, second names of an enum constant. C sees the same types either way;
//! generators of bindings derive names and kinds from the form.

use crate::{Fallible, Spec};

/// Kinds of types that have tags.
const KINDS: [&str; 3] = ["enum", "struct", "union"];

/// Declarations, in order, each with its comment; cbindgen separates them by an empty line.
pub struct Shape(Vec<String>);

impl Shape {
    pub fn new(text: &str) -> Self {
        Self(text.trim().split("\n\n").map(str::to_owned).collect())
    }

    /// Applies the spec of a header; fails when one of its names is not declared.
    pub fn apply(mut self, spec: &Spec) -> Fallible<String> {
        for (tag, aliases) in &spec.aliases {
            self.add_aliases(tag, aliases)?;
        }
        for tag in &spec.members {
            self.inline(tag)?;
        }
        for name in &spec.packed {
            self.pack(name)?;
        }
        for tag in &spec.nameless {
            let (at, kind) = self.definition(tag)?;
            self.0[at] = self.0[at].replacen(&format!("{kind} {tag} {{"), &format!("{kind} {{"), 1);
            self.refuse(kind, tag)?;
        }
        for tag in &spec.untagged {
            self.take_tag(tag)?;
        }
        Ok(self.0.join("\n\n"))
    }

    /// The position of a type's definition, and its kind.
    fn definition(&self, tag: &str) -> Fallible<(usize, &'static str)> {
        KINDS
            .into_iter()
            .find_map(|kind| {
                let start = format!("{kind} {tag} {{");
                let at = self
                    .0
                    .iter()
                    .position(|one| one.lines().any(|line| line == start))?;
                Some((at, kind))
            })
            .ok_or_else(|| format!("no definition of {tag}").into())
    }

    /// Adds constants behind those of an enum: name, value and comment of each.
    fn add_aliases(&mut self, tag: &str, aliases: &[[String; 3]]) -> Fallible<()> {
        let (at, _) = self.definition(tag)?;
        let more: String = aliases
            .iter()
            .map(|[name, value, about]| format!("    // {about}\n    {name} = {value},\n"))
            .collect();
        self.0[at] = replace_end(&self.0[at], "};", &format!("{more}}};"))?;
        Ok(())
    }

    /// Moves the definition of a union to the member that has it: `union tag cb;` becomes `union { ... } cb;`.
    fn inline(&mut self, tag: &str) -> Fallible<()> {
        let (at, kind) = self.definition(tag)?;
        let definition = self.0.remove(at);
        let start = format!("{kind} {tag} {{\n");
        let (_, body) = definition
            .split_once(&start)
            .ok_or("a definition has a body")?;
        let body = replace_end(body, "};", "")?;
        let indented: String = body.lines().map(|line| format!("    {line}\n")).collect();
        let member = format!("    {kind} {tag} ");
        let user = self
            .0
            .iter_mut()
            .find(|one| one.contains(&member))
            .ok_or_else(|| format!("no member of type {tag}"))?;
        *user = user.replacen(&member, &format!("    {kind} {{\n{indented}    }} "), 1);
        self.refuse(kind, tag)
    }

    /// Makes a one-byte enum of cbindgen's enum and integer type.
    fn pack(&mut self, name: &str) -> Fallible<()> {
        let start = format!("enum {name}\n#if");
        let found = self.0.iter_mut().find(|one| one.contains(&start));
        let one = found.ok_or_else(|| format!("no enum {name} of a given size"))?;
        let (about, rest) = one.split_once(&start).ok_or("found above")?;
        let (_, rest) = rest.split_once("\n {\n").ok_or("an enum has constants")?;
        let (body, _) = rest.split_once("\n};\n").ok_or("an enum ends")?;
        *one = format!("{about}typedef enum {{\n{body}\n}} UCS_S_PACKED {name};");
        self.refuse("enum", name)
    }

    /// Joins a definition and its typedef: `typedef struct { ... } name_t;`.
    fn take_tag(&mut self, tag: &str) -> Fallible<()> {
        let (at, kind) = self.definition(tag)?;
        let start = format!("typedef {kind} {tag} ");
        let named = self.0.iter().enumerate().find_map(|(at, one)| {
            let line = one.lines().find_map(|line| line.strip_prefix(&start))?;
            Some((at, line.strip_suffix(';')?.to_owned()))
        });
        let (typedef, name) = named.ok_or_else(|| format!("no typedef of {tag}"))?;
        let body = replace_end(&self.0[at], "};", &format!("}} {name};"))?;
        self.0[at] = body.replacen(
            &format!("{kind} {tag} {{"),
            &format!("typedef {kind} {{"),
            1,
        );
        self.0.remove(typedef);
        self.refuse(kind, tag)
    }

    /// Fails when a declaration names a removed tag.
    fn refuse(&self, kind: &str, tag: &str) -> Fallible<()> {
        let gone = format!("{kind} {tag}");
        let is_used = self.0.iter().any(|one| {
            one.match_indices(&gone).any(|(at, _)| {
                !one[at + gone.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        });
        if is_used {
            Err(format!("{gone} is used, and has no tag").into())
        } else {
            Ok(())
        }
    }
}

/// The text with another end.
fn replace_end(text: &str, end: &str, other: &str) -> Fallible<String> {
    let rest = text
        .strip_suffix(end)
        .ok_or_else(|| format!("{text} does not end with {end}"))?;
    Ok(format!("{rest}{other}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaped(text: &str, spec: &str) -> Fallible<String> {
        let spec: Spec = toml::from_str(&format!("path = 'x.h'\nabout = ''\n{spec}"))?;
        Shape::new(text).apply(&spec)
    }

    #[test]
    fn a_tag_goes_into_the_typedef() {
        let text = "// A.\nstruct a {\n    int x;\n};\n\n// A.\ntypedef struct a a_t;";
        let made = shaped(text, "untagged = ['a']").expect("it is declared");
        assert_eq!(made, "// A.\ntypedef struct {\n    int x;\n} a_t;");
        let used = format!("{text}\n\nvoid f(struct a x);");
        assert!(
            shaped(&used, "untagged = ['a']").is_err(),
            "its tag is used"
        );
        assert!(
            shaped(text, "untagged = ['b']").is_err(),
            "it is not declared"
        );
    }

    #[test]
    fn a_union_goes_into_its_member() {
        let text = "union u {\n    int x;\n};\n\nstruct a {\n    union u cb;\n};";
        let made = shaped(text, "members = ['u']").expect("it is declared");
        assert_eq!(
            made,
            "struct a {\n    union {\n        int x;\n    } cb;\n};"
        );
    }

    #[test]
    fn an_enum_has_further_names_and_no_tag() {
        let made = shaped(
            "enum e {\n    A = 1,\n};",
            "nameless = ['e']\naliases = { e = [['B', 'A', 'As A.']] }",
        );
        let made = made.expect("it is declared");
        assert_eq!(made, "enum {\n    A = 1,\n    // As A.\n    B = A,\n};");
    }
}
