//! The static rules: what a kernel may contain, judged on its syntax tree.
//!
//! They are an allow-list: a construct that is not named here is refused. They are not
//! the sandbox (which trusts nothing), but they keep out what the sandbox cannot judge:
//! libraries, compile-time tricks, state between calls.

mod directives;
mod functions;
mod names;
mod syntax;

use tree_sitter::Node;

use super::completion::Kernel;
use super::problem::Problem;
use super::source::without_comments;
use super::techniques::{self, Techniques};
use super::verdict::Verdict;
pub(super) use syntax::Syntax;

/// Judges a kernel and says which techniques it uses.
///
/// # Errors
/// The first rule it breaks, with the line as the policy wrote it:
/// [`Verdict::FormatViolation`] or [`Verdict::LibraryViolation`].
pub fn check(problem: &Problem, kernel: &Kernel) -> Result<Techniques, Verdict> {
    let limit = problem.rules.max_bytes;
    if kernel.code.len() > limit {
        let size = kernel.code.len();
        return Err(Verdict::FormatViolation(format!(
            "{size} bytes of code; at most {limit}"
        )));
    }
    let judge = Judge {
        problem,
        lead: kernel.lead,
    };
    judge.characters(&kernel.code)?;
    let syntax = Syntax::parse(&kernel.code, |directive| {
        directives::judge(&judge, directive)
    })?;
    let root = syntax.root();
    if let Some(broken) = first_broken(root) {
        return Err(judge.format(line(broken), "the code does not parse here"));
    }
    judge.constructs(&syntax, root)?;
    functions::judge(&judge, &syntax)?;
    Ok(techniques::of(problem, &syntax))
}

/// What all rules need to know, and how they speak.
struct Judge<'a> {
    problem: &'a Problem,
    lead: usize,
}

/// Line of a node in the kernel's code, from 1.
fn line(node: Node) -> usize {
    node.start_position().row + 1
}

/// The first node that the parser could not make sense of.
fn first_broken(node: Node) -> Option<Node> {
    if !node.has_error() {
        return None;
    }
    if node.is_error() || node.is_missing() {
        return Some(node);
    }
    (0..node.child_count() as u32).find_map(|at| node.child(at).and_then(first_broken))
}

impl Judge<'_> {
    /// A violation of the format in a line of the code.
    fn format(&self, line: usize, why: &str) -> Verdict {
        Verdict::FormatViolation(self.place(line, why))
    }

    /// A forbidden header, call or the like in a line of the code.
    fn library(&self, line: usize, why: &str) -> Verdict {
        Verdict::LibraryViolation(self.place(line, why))
    }

    fn place(&self, line: usize, why: &str) -> String {
        match line.checked_sub(self.lead) {
            Some(line) if line > 0 => format!("line {line}: {why}"),
            _ => format!("before the body: {why}"),
        }
    }

    /// Characters that let the compiler read something else than the parser does:
    /// spliced lines, trigraphs, digraphs, other alphabets (which comments may use).
    fn characters(&self, code: &str) -> Result<(), Verdict> {
        let bare = without_comments(code);
        for (at, (text, bare)) in code.lines().zip(bare.lines()).enumerate() {
            let what = if text.contains('\\') {
                "a backslash"
            } else if text.contains("??") || text.contains("%:") {
                "a trigraph or digraph"
            } else if text.contains(|c: char| c.is_control() && c != '\t') {
                "a control character"
            } else if !bare.is_ascii() {
                "a character outside ASCII"
            } else if bare.trim_start().starts_with('#') && text.contains("/*") {
                "a block comment in a directive"
            } else {
                continue;
            };
            return Err(self.format(at + 1, &format!("{what} is not allowed")));
        }
        Ok(())
    }

    /// Every construct is one of the allowed ones.
    fn constructs(&self, syntax: &Syntax, node: Node) -> Result<(), Verdict> {
        let kind = node.kind();
        if node.is_named() && !names::CONSTRUCTS.contains(&kind) {
            let what = kind.replace('_', " ");
            let why = format!("{what} is not allowed");
            return Err(match kind {
                k if k.contains("asm") => self.library(line(node), "inline assembly is forbidden"),
                _ => self.format(line(node), &why),
            });
        }
        let text = syntax.text(node);
        let parent = node.parent();
        let parent_kind = parent.map_or("", |p| p.kind());
        match kind {
            "declaration" if parent_kind == "translation_unit" => {
                return Err(self.format(
                    line(node),
                    "a declaration outside a function: state between calls and prototypes are not allowed",
                ));
            }
            "storage_class_specifier" => {
                let fine = match text {
                    "register" => parent_kind == "declaration",
                    "static" | "inline" => parent_kind == "function_definition",
                    _ => false,
                };
                if !fine {
                    let why = format!("`{text}` here: state between calls is not allowed");
                    return Err(self.format(line(node), &why));
                }
            }
            "type_qualifier" if !names::QUALIFIERS.contains(&text) => {
                return Err(self.format(line(node), &format!("`{text}` is not allowed")));
            }
            "type_identifier" if !self.problem.prelude_types.iter().any(|t| t == text) => {
                return Err(self.format(line(node), &format!("unknown type `{text}`")));
            }
            "identifier" if text.starts_with('_') && !self.may_call(text) => {
                return Err(self.library(line(node), &format!("`{text}` is a reserved name")));
            }
            _ => {}
        }
        for at in 0..node.child_count() as u32 {
            if let Some(child) = node.child(at) {
                self.constructs(syntax, child)?;
            }
        }
        Ok(())
    }

    /// Whether the problem allows this call.
    fn may_call(&self, name: &str) -> bool {
        let rules = &self.problem.rules;
        rules
            .allowed_calls
            .iter()
            .chain(&self.problem.prelude_calls)
            .any(|n| n == name)
    }
}
