//! Reading the techniques off a syntax tree.

use tree_sitter::Node;

use super::update::{Input, Locals, Update, descendants};
use super::{Technique, Techniques};
use crate::kernel::problem::Problem;
use crate::kernel::rules::Syntax;

/// The techniques that a kernel uses. What is read is the first statement that adds a
/// product to something (the update), the loops around it, copies into local arrays,
/// and the pragmas. A form that is not recognised gives no tag.
pub(in crate::kernel) fn of(problem: &Problem, syntax: &Syntax) -> Techniques {
    let mut found = Techniques::NONE;
    for directive in syntax.directives() {
        let text = &directive.text;
        let says = |word: &str| {
            text.split(|c: char| !c.is_alphanumeric())
                .any(|w| w == word)
        };
        if says("unroll") {
            found.insert(Technique::Unrolling);
        }
        if says("omp") && says("simd") {
            found.insert(Technique::OmpSimd);
        }
        if says("omp") && says("parallel") {
            found.insert(Technique::OmpParallel);
        }
    }
    for name in syntax.all("type_identifier") {
        if problem.prelude_types.iter().any(|t| t == syntax.text(name)) {
            found.insert(Technique::VectorTypes);
        }
    }
    for call in syntax.all("call_expression") {
        if syntax.text(call).starts_with("__builtin_prefetch") {
            found.insert(Technique::Prefetch);
        }
    }
    let locals = Locals::of(syntax);
    copies(syntax, &locals, &mut found);
    let updates: Vec<Update> = syntax
        .all("assignment_expression")
        .into_iter()
        .filter_map(|node| Update::read(syntax, &locals, node))
        .collect();
    if let Some(update) = updates.first() {
        accumulators(update, &updates, &mut found);
        loops(syntax, update, &mut found);
    }
    found
}

/// Where the sums are kept, and what is read early.
fn accumulators(update: &Update, updates: &[Update], found: &mut Techniques) {
    // Four sums in scalars of their own are a block, written out.
    const BLOCK: usize = 4;
    let mut scalars: Vec<&str> = updates
        .iter()
        .filter(|u| u.local && !u.indexed)
        .map(|u| u.target.as_str())
        .collect();
    scalars.sort_unstable();
    scalars.dedup();
    if update.local && update.indexed || scalars.len() >= BLOCK {
        found.insert(Technique::RegisterBlocking);
    } else if update.local {
        found.insert(Technique::ScalarAccumulation);
    }
    if update.hoisted {
        found.insert(Technique::Hoisting);
    }
}

/// The order of the loops around the update, and whether any is split.
fn loops(syntax: &Syntax, update: &Update, found: &mut Techniques) {
    // From the outside in: variable, and where it starts.
    let mut heads: Vec<(String, String)> = Vec::new();
    let mut node = update.node.parent();
    while let Some(at) = node {
        if at.kind() == "for_statement" {
            heads.extend(head(syntax, at));
        }
        node = at.parent();
    }
    heads.reverse();
    for (at, (_, start)) in heads.iter().enumerate() {
        if heads[..at].iter().any(|(outer, _)| outer == start) {
            found.insert(Technique::CacheBlocking);
        }
    }
    let mut order = String::new();
    for (at, (variable, _)) in heads.iter().enumerate() {
        let Some(dim) = update.dimension(variable) else {
            continue;
        };
        let again = heads[at + 1..]
            .iter()
            .any(|(v, _)| update.dimension(v) == Some(dim));
        if !again {
            order.push(dim);
        }
    }
    let tag = match order.as_str() {
        "ijk" => Technique::OrderIjk,
        "ikj" => Technique::OrderIkj,
        "jik" => Technique::OrderJik,
        "jki" => Technique::OrderJki,
        "kij" => Technique::OrderKij,
        "kji" => Technique::OrderKji,
        _ => return,
    };
    found.insert(tag);
}

/// The variable of a loop and the text of its start.
fn head(syntax: &Syntax, node: Node) -> Option<(String, String)> {
    let start = node.child_by_field_name("initializer")?;
    let pair = match start.kind() {
        "declaration" => {
            let declarator = start.child_by_field_name("declarator")?;
            (
                declarator.child_by_field_name("declarator")?,
                declarator.child_by_field_name("value")?,
            )
        }
        _ => (
            start.child_by_field_name("left")?,
            start.child_by_field_name("right")?,
        ),
    };
    Some((
        syntax.text(pair.0).to_string(),
        syntax.text(pair.1).to_string(),
    ))
}

/// Copies of an input into local arrays.
fn copies(syntax: &Syntax, locals: &Locals, found: &mut Techniques) {
    for node in syntax.all("assignment_expression") {
        let (Some(left), Some(right)) = (
            node.child_by_field_name("left"),
            node.child_by_field_name("right"),
        ) else {
            continue;
        };
        let plain = node
            .child_by_field_name("operator")
            .is_some_and(|o| o.kind() == "=");
        if !plain || left.kind() != "subscript_expression" || !locals.is_local(base(syntax, left)) {
            continue;
        }
        let reads = |n: &Node| {
            n.kind() == "subscript_expression"
                && matches!(
                    locals.parameter(base(syntax, *n)),
                    Some(Input::A | Input::B)
                )
        };
        let Some(source) = descendants(right).into_iter().find(reads) else {
            continue;
        };
        found.insert(Technique::Packing);
        let (to, from) = (unit(syntax, left), unit(syntax, source));
        if !to.iter().any(|v| from.contains(v)) {
            found.insert(Technique::TransposedCopy);
        }
    }
}

/// The name that a subscript is taken of.
fn base<'s>(syntax: &'s Syntax, subscript: Node) -> &'s str {
    let mut node = subscript;
    while let Some(inner) = node.child_by_field_name("argument") {
        node = inner;
    }
    syntax.text(node)
}

/// The variables that move a subscript by one element: the summands of the last index
/// that nothing multiplies.
fn unit<'s>(syntax: &'s Syntax, subscript: Node) -> Vec<&'s str> {
    let mut variables = Vec::new();
    let mut stack: Vec<Node> = subscript.child_by_field_name("index").into_iter().collect();
    while let Some(node) = stack.pop() {
        match node.kind() {
            "identifier" => variables.push(syntax.text(node)),
            "parenthesized_expression" => stack.extend(node.named_child(0)),
            // MIN(j+s, n-1) moves as its arguments do.
            "call_expression" => stack.extend(
                node.child_by_field_name("arguments")
                    .into_iter()
                    .flat_map(|list| {
                        (0..list.named_child_count() as u32)
                            .filter_map(move |at| list.named_child(at))
                    }),
            ),
            "binary_expression" => {
                let operator = node.child_by_field_name("operator").map(|o| o.kind());
                if matches!(operator, Some("+" | "-")) {
                    stack.extend(node.child_by_field_name("left"));
                    stack.extend(node.child_by_field_name("right"));
                }
            }
            _ => {}
        }
    }
    variables
}
