//! Reading C text below the syntax tree: comments, directives, the normal form.

use sha2::{Digest, Sha256};

/// The text with every comment replaced by spaces; lines and columns stay.
pub(super) fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            blank(&mut out, &rest[..end]);
            end
        } else if let Some(inside) = rest.strip_prefix("/*") {
            let end = inside.find("*/").map_or(rest.len(), |at| at + 4);
            blank(&mut out, &rest[..end]);
            end
        } else if c == '"' || c == '\'' {
            let end = literal(rest, c);
            out.push_str(&rest[..end]);
            end
        } else {
            out.push(c);
            c.len_utf8()
        };
        rest = &rest[taken..];
    }
    out
}

/// Length of the string or character literal that `text` starts with.
fn literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return at,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Appends as many bytes of white space as `text` has, with its line breaks.
pub(super) fn blank(out: &mut String, text: &str) {
    out.extend(text.bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }));
}

/// SHA-256 of the text's tokens: kernels that differ in comments and white space only
/// have the same.
pub fn normal_form_hash(code: &str) -> [u8; 32] {
    let code = without_comments(code);
    let mut hash = Sha256::new();
    for line in code.lines() {
        // A directive ends with its line, all other lines run on.
        let directive = line.trim_start().starts_with('#');
        if directive {
            hash.update(b"\n");
        }
        for token in tokens(line) {
            hash.update(token.as_bytes());
            hash.update(b" ");
        }
        if directive {
            hash.update(b"\n");
        }
    }
    hash.finalize().into()
}

/// The tokens of one line: words and numbers whole, operators as the compiler reads
/// them (longest match).
pub(super) fn tokens(line: &str) -> impl Iterator<Item = &str> {
    const OPERATORS: [&str; 23] = [
        "...", "<<=", ">>=", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
        "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##",
    ];
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let c = rest.chars().next()?;
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let end = if c == '"' || c == '\'' {
            literal(rest, c)
        } else if word(c) && !rest.starts_with("...") {
            rest.find(|c| !word(c)).unwrap_or(rest.len())
        } else {
            OPERATORS
                .iter()
                .find(|op| rest.starts_with(**op))
                .map_or(c.len_utf8(), |op| op.len())
        };
        let token = &rest[..end];
        rest = &rest[end..];
        Some(token)
    })
}
