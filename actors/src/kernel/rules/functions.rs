//! Functions and calls: the signature, the allow-list, no recursion.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use super::{Judge, Syntax, line};
use crate::kernel::source::tokens;
use crate::kernel::verdict::Verdict;

/// Judges the functions of a kernel.
pub(super) fn judge(judge: &Judge, syntax: &Syntax) -> Result<(), Verdict> {
    let mut functions: BTreeMap<&str, Node> = BTreeMap::new();
    for node in syntax.all("function_definition") {
        if node.parent().map(|p| p.kind()) != Some("translation_unit") {
            return Err(judge.format(line(node), "a function inside a function"));
        }
        let Some(name) = name_of(syntax, node) else {
            return Err(judge.format(line(node), "a function without a plain name"));
        };
        if name != judge.problem.symbol && !syntax.text(node).starts_with("static") {
            return Err(judge.format(line(node), &format!("helper `{name}` must be static")));
        }
        if functions.insert(name, node).is_some() {
            return Err(judge.format(line(node), &format!("`{name}` is defined twice")));
        }
    }
    signature(judge, syntax, &functions)?;
    for node in syntax.all("function_declarator") {
        if !declares_definition(node) {
            return Err(judge.library(line(node), "a function is declared but not defined here"));
        }
    }
    for node in syntax.all("call_expression") {
        let callee = node.child_by_field_name("function");
        let name = callee
            .filter(|c| c.kind() == "identifier")
            .map(|c| syntax.text(c));
        match name {
            Some(name) if functions.contains_key(name) || judge.may_call(name) => {}
            Some(name) => {
                return Err(judge.library(line(node), &format!("call of `{name}` is forbidden")));
            }
            None => return Err(judge.library(line(node), "a call through a pointer is forbidden")),
        }
    }
    addresses(judge, syntax, &functions)?;
    recursion(judge, syntax, &functions)
}

/// The required function is there, with the required signature.
fn signature(
    judge: &Judge,
    syntax: &Syntax,
    functions: &BTreeMap<&str, Node>,
) -> Result<(), Verdict> {
    let wanted = &judge.problem.signature;
    let Some(node) = functions.get(judge.problem.symbol.as_str()) else {
        return Err(Verdict::FormatViolation(format!(
            "there is no function `{wanted}`"
        )));
    };
    let text = syntax.text(*node);
    let head = node
        .child_by_field_name("body")
        .map_or(text, |body| &text[..body.start_byte() - node.start_byte()]);
    let flat = |text: &str| {
        text.lines()
            .flat_map(tokens)
            .map(String::from)
            .collect::<Vec<_>>()
    };
    if flat(head) != flat(wanted) {
        return Err(judge.format(line(*node), &format!("the signature must be `{wanted}`")));
    }
    Ok(())
}

/// The name of a function definition.
fn name_of<'s>(syntax: &'s Syntax, definition: Node) -> Option<&'s str> {
    let mut node = definition.child_by_field_name("declarator")?;
    while node.kind() == "pointer_declarator" {
        node = node.child_by_field_name("declarator")?;
    }
    let name = node.child_by_field_name("declarator")?;
    (node.kind() == "function_declarator" && name.kind() == "identifier").then(|| syntax.text(name))
}

/// Whether a function declarator is the head of a definition.
fn declares_definition(declarator: Node) -> bool {
    let mut parent = declarator.parent();
    while let Some(node) = parent.filter(|p| p.kind() == "pointer_declarator") {
        parent = node.parent();
    }
    parent.is_some_and(|p| p.kind() == "function_definition")
}

/// Functions are called, and nothing else is done with their names.
fn addresses(
    judge: &Judge,
    syntax: &Syntax,
    functions: &BTreeMap<&str, Node>,
) -> Result<(), Verdict> {
    for node in syntax.all("identifier") {
        let name = syntax.text(node);
        let used_as = node.parent().map_or("", |p| p.kind());
        if (functions.contains_key(name) || judge.may_call(name))
            && !matches!(used_as, "call_expression" | "function_declarator")
        {
            return Err(judge.library(line(node), &format!("`{name}` is used, but not called")));
        }
    }
    Ok(())
}

/// No function comes back to itself.
fn recursion(
    judge: &Judge,
    syntax: &Syntax,
    functions: &BTreeMap<&str, Node>,
) -> Result<(), Verdict> {
    let mut calls: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in syntax.all("call_expression") {
        let Some(callee) = node.child_by_field_name("function").map(|c| syntax.text(c)) else {
            continue;
        };
        let caller = functions
            .iter()
            .find(|(_, f)| f.byte_range().contains(&node.start_byte()));
        if let Some((caller, _)) = caller {
            calls.entry(caller).or_default().insert(callee);
        }
    }
    for (name, node) in functions {
        let mut reached = BTreeSet::new();
        let mut stack: Vec<&str> = calls.get(name).into_iter().flatten().copied().collect();
        while let Some(next) = stack.pop() {
            if next == *name {
                return Err(judge.format(line(*node), &format!("`{name}` calls itself")));
            }
            if reached.insert(next) {
                stack.extend(calls.get(next).into_iter().flatten());
            }
        }
    }
    Ok(())
}
