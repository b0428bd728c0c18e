//! Names of crates.

use std::path::Path;

use super::Failure;

/// Rust's own words, which are no names (The Rust Reference, "Keywords": strict and reserved ones).
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];
/// Crates that the new one depends on, and names with a meaning to cargo.
const TAKEN: &[&str] = &[
    "actix",
    "alloc",
    "build",
    "core",
    "corehold",
    "deps",
    "examples",
    "incremental",
    "proc_macro",
    "serde",
    "std",
    "test",
];

/// The crate's name in `path`.
///
/// # Errors
/// Where it is none; the error suggests the nearest that is.
pub(super) fn of(path: &Path) -> Result<String, Failure> {
    let Some(last) = path.file_name() else {
        return Err(format!(
            "{} has no last part that could name a crate",
            path.display()
        )
        .into());
    };
    let name = last.to_string_lossy();
    match flaw(&name) {
        None => Ok(name.into_owned()),
        Some(flaw) => Err(format!(
            "`{name}` is no name of a crate: {flaw}; `{}` is one",
            nearest(&name)
        )
        .into()),
    }
}

fn flaw(name: &str) -> Option<String> {
    let first = name.chars().next()?;
    if let Some(c) = name
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !['-', '_'].contains(c))
    {
        return Some(format!(
            "it has `{c}`, and only ASCII letters, digits, `-` and `_` are allowed"
        ));
    }
    if !first.is_ascii_alphabetic() {
        return Some(format!("it begins with `{first}`, not with a letter"));
    }
    if KEYWORDS.contains(&name) {
        return Some("it is a word of Rust's own".to_owned());
    }
    if TAKEN.contains(&name.replace('-', "_").as_str()) {
        return Some("that crate or folder exists already".to_owned());
    }
    None
}

/// The name with what is not allowed replaced, and no more changed than that.
fn nearest(name: &str) -> String {
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    let mut near: String = name.chars().map(allowed).collect();
    near = near.trim_matches('-').to_owned();
    if !near.starts_with(|c: char| c.is_ascii_alphabetic()) {
        near = format!("my-{near}").trim_end_matches('-').to_owned();
    }
    if flaw(&near).is_some() {
        near = format!("my-{near}");
    }
    // Of nothing but signs nothing is left.
    if near == "my" {
        "myapp".to_owned()
    } else {
        near
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_are_and_are_not() {
        for good in ["myapp", "my-app", "a", "x_1", "Counter2"] {
            assert_eq!(of(Path::new(good)).unwrap(), good);
        }
        let bad = [
            ("my app", "my-app"),
            ("7zip", "my-7zip"),
            ("match", "my-match"),
            ("corehold", "my-corehold"),
            ("proc-macro", "my-proc-macro"),
            ("caf\u{e9}.rs", "caf--rs"),
            ("!!", "myapp"),
        ];
        for (bad, near) in bad {
            let said = of(Path::new(bad)).unwrap_err().to_string();
            assert!(said.ends_with(&format!("`{near}` is one")), "{said}");
        }
        assert!(of(Path::new("..")).is_err());
    }

    proptest! {
        #[test]
        fn what_is_suggested_is_a_name(name in "\\PC{1,20}") {
            prop_assert_eq!(flaw(&nearest(&name)), None);
        }
    }
}
