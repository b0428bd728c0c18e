//! Preprocessor directives: a few pragmas, and macros that are plain numbers.

use super::syntax::Directive;
use super::{Judge, names};
use crate::kernel::source::tokens;
use crate::kernel::verdict::Verdict;

/// Judges one directive.
pub(super) fn judge(judge: &Judge, directive: &Directive) -> Result<(), Verdict> {
    let words: Vec<&str> = tokens(&directive.text).collect();
    let refuse = |why: &str| Err(judge.format(directive.line, why));
    match words.as_slice() {
        ["#", "pragma", "GCC", "ivdep"] => Ok(()),
        ["#", "pragma", "GCC", "unroll", factor] if number(factor) => Ok(()),
        ["#", "pragma", "omp", directive @ ..] => match open_mp(judge, directive) {
            Ok(()) => Ok(()),
            Err(why) => refuse(&why),
        },
        ["#", "pragma", ..] => refuse("only `omp`, `GCC unroll N` and `GCC ivdep` pragmas"),
        [
            "#",
            "include" | "include_next" | "import" | "embed",
            header @ ..,
        ] => {
            let header = header.concat();
            let allowed = &judge.problem.rules.allowed_headers;
            if allowed.iter().any(|h| format!("<{h}>") == header) {
                return Ok(());
            }
            Err(judge.library(directive.line, &format!("header {header} is forbidden")))
        }
        ["#", "define", name, value] if number(value) => match fresh(judge, name) {
            true => Ok(()),
            false => refuse(&format!("`{name}` must not be redefined")),
        },
        ["#", "define", ..] => refuse("a macro may only name a number"),
        _ => refuse("this directive is not allowed"),
    }
}

fn number(word: &str) -> bool {
    !word.is_empty() && word.len() <= 6 && word.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a macro of this name changes nothing that the rules have judged.
fn fresh(judge: &Judge, name: &str) -> bool {
    let word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let shared = |text: &str| text.lines().any(|line| tokens(line).any(|t| t == name));
    word && !name.starts_with('_')
        && !names::KEYWORDS.contains(&name)
        && !names::CLAUSES.contains(&name)
        && !shared(&judge.problem.signature)
        && !shared(&judge.problem.prelude)
        && !judge.may_call(name)
        && !judge.problem.rules.allowed_omp.iter().any(|w| w == name)
}

/// Words of an OpenMP directive: allowed directives, then clauses, whose arguments
/// hold no calls.
fn open_mp(judge: &Judge, words: &[&str]) -> Result<(), String> {
    let allowed = &judge.problem.rules.allowed_omp;
    let mut depth = 0_u32;
    if words.is_empty() {
        return Err("an OpenMP pragma without a directive".into());
    }
    for (at, word) in words.iter().enumerate() {
        match *word {
            "(" if depth == 1 => return Err("a call inside a clause".into()),
            "(" => depth += 1,
            ")" if depth == 0 => return Err("unbalanced parentheses in a pragma".into()),
            ")" => depth -= 1,
            _ if depth > 0 => {}
            "," if at > 0 => {}
            word if allowed.iter().any(|a| a == word) => {}
            word if at > 0 && names::CLAUSES.contains(&word) => {}
            word => return Err(format!("OpenMP `{word}` is not allowed")),
        }
    }
    match depth {
        0 => Ok(()),
        _ => Err("unbalanced parentheses in a pragma".into()),
    }
}
