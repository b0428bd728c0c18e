//! From what a policy wrote to a C translation unit.

use serde::{Deserialize, Serialize};

use super::problem::Problem;
use super::verdict::Verdict;

/// What a policy is asked to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompletionStyle {
    /// The body of the function, without its outer braces (the embedded policy).
    Body,
    /// Prose with one fenced code block that holds the whole function (chat models).
    Fenced,
}

/// The code of one completion, and the translation unit it makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The kernel's own C text: signature, body and its helper functions.
    pub code: String,
    /// What is compiled: the problem's prelude, then `code`, with line markers so that
    /// the compiler speaks of the lines that the policy wrote.
    pub source: String,
    /// Lines of `code` in front of the first one that the policy wrote.
    pub lead: usize,
}

/// From here the compiler counts lines anew.
const LINE_MARKER: &str = "#line 1 \"kernel.c\"";

impl Kernel {
    /// A kernel from its own C text (a whole function).
    pub fn from_code(problem: &Problem, code: &str) -> Kernel {
        let (prelude, code) = (problem.prelude.trim(), code.trim_end());
        let source = format!("{prelude}\n{LINE_MARKER}\n{code}\n");
        Kernel {
            code: format!("{code}\n"),
            source,
            lead: 0,
        }
    }

    /// A kernel from the body of the function.
    pub fn from_body(problem: &Problem, body: &str) -> Kernel {
        let (prelude, signature, body) =
            (problem.prelude.trim(), &problem.signature, body.trim_end());
        let code = format!("{signature}\n{{\n{body}\n}}\n");
        let source = format!("{prelude}\n{signature}\n{{\n{LINE_MARKER}\n{body}\n}}\n");
        Kernel {
            code,
            source,
            lead: 2,
        }
    }

    /// The kernel in a completion. Whether it may run is for the rules to say.
    ///
    /// # Errors
    /// [`Verdict::FormatViolation`]: nothing there, no closed code block, or several
    /// blocks that define the function.
    pub fn extract(
        problem: &Problem,
        style: CompletionStyle,
        completion: &str,
    ) -> Result<Kernel, Verdict> {
        match style {
            CompletionStyle::Body if completion.trim().is_empty() => {
                Err(Verdict::FormatViolation("the completion is empty".into()))
            }
            CompletionStyle::Body => Ok(Kernel::from_body(problem, completion)),
            CompletionStyle::Fenced => fenced(problem, completion),
        }
    }
}

fn fenced(problem: &Problem, completion: &str) -> Result<Kernel, Verdict> {
    let violation = |text: String| Err(Verdict::FormatViolation(text));
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Vec<&str>)> = None;
    for (at, line) in completion.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        match (fence, open.take()) {
            (true, None) => open = Some((at + 1, Vec::new())),
            (true, Some((_, lines))) => blocks.push(lines.join("\n")),
            (false, Some((start, mut lines))) => {
                lines.push(line);
                open = Some((start, lines));
            }
            (false, None) => {}
        }
    }
    if let Some((start, _)) = open {
        return violation(format!("line {start}: the code block is not closed"));
    }
    // A model may quote the task's example first; what defines the function counts.
    blocks.retain(|code| code.contains(&format!("{}(", problem.symbol)));
    match blocks.as_slice() {
        [] => violation(format!("no code block that defines `{}`", problem.symbol)),
        [code] => Ok(Kernel::from_code(problem, code)),
        several => violation(format!(
            "{} code blocks define `{}`; exactly one must",
            several.len(),
            problem.symbol
        )),
    }
}
