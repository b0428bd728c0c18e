//! The statement that adds a product to a sum, and where its factors come from.

use std::collections::HashMap;

use tree_sitter::Node;

use crate::kernel::rules::Syntax;

/// An input of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The left one: rows by summed dimension.
    A,
    /// The right one: summed dimension by columns.
    B,
}

/// What the names of a kernel stand for.
pub(super) struct Locals {
    /// Parameters that are pointers to const, in order: A, B.
    inputs: HashMap<String, Input>,
    /// Local arrays and scalars; a scalar with the names that its first value reads.
    locals: HashMap<String, Vec<String>>,
    /// Local arrays that hold copies.
    copies: HashMap<String, Input>,
}

impl Locals {
    /// Reads the declarations and copies of a kernel.
    pub(super) fn of(syntax: &Syntax) -> Locals {
        let mut inputs = HashMap::new();
        for node in syntax.all("parameter_declaration") {
            let text = syntax.text(node);
            if !text.contains('*') || !text.contains("const") {
                continue;
            }
            let name = descendants(node)
                .into_iter()
                .rfind(|n| n.kind() == "identifier");
            if let Some(name) = name {
                let input = if inputs.is_empty() {
                    Input::A
                } else {
                    Input::B
                };
                inputs.entry(syntax.text(name).to_string()).or_insert(input);
            }
        }
        let mut locals = HashMap::new();
        for node in syntax.all("declaration") {
            for at in 0..node.named_child_count() as u32 {
                let Some(declarator) = node.named_child(at) else {
                    continue;
                };
                let value = declarator.child_by_field_name("value");
                let names = match declarator.kind() {
                    "identifier" | "array_declarator" => Vec::new(),
                    "init_declarator" => value.map(|v| names(syntax, v)).unwrap_or_default(),
                    _ => continue,
                };
                let name = descendants(declarator)
                    .into_iter()
                    .find(|n| n.kind() == "identifier");
                if let Some(name) = name {
                    locals.insert(syntax.text(name).to_string(), names);
                }
            }
        }
        let mut known = Locals {
            inputs,
            locals,
            copies: HashMap::new(),
        };
        for node in syntax.all("assignment_expression") {
            let (Some(left), Some(right)) = (
                node.child_by_field_name("left"),
                node.child_by_field_name("right"),
            ) else {
                continue;
            };
            if node
                .child_by_field_name("operator")
                .is_none_or(|o| o.kind() != "=")
            {
                continue;
            }
            let target = names(syntax, left).into_iter().next().unwrap_or_default();
            let source = names(syntax, right).iter().find_map(|n| known.parameter(n));
            if let (true, Some(input)) = (known.is_local(&target), source) {
                known.copies.entry(target).or_insert(input);
            }
        }
        known
    }

    /// Whether the name is a local variable.
    pub(super) fn is_local(&self, name: &str) -> bool {
        self.locals.contains_key(name)
    }

    /// The input that a parameter is.
    pub(super) fn parameter(&self, name: &str) -> Option<Input> {
        self.inputs.get(name).copied()
    }
}

/// One update: `target += x * y`, or the same written otherwise.
pub(super) struct Update<'t> {
    /// The assignment.
    pub(super) node: Node<'t>,
    /// The variable that is added to.
    pub(super) target: String,
    /// Whether that is a local variable.
    pub(super) local: bool,
    /// Whether it is an array's element.
    pub(super) indexed: bool,
    /// Whether a factor was read into a scalar before.
    pub(super) hoisted: bool,
    rows: Vec<String>,
    columns: Vec<String>,
}

impl<'t> Update<'t> {
    /// Reads an assignment as an update, if it is one.
    pub(super) fn read(syntax: &Syntax, locals: &Locals, node: Node<'t>) -> Option<Update<'t>> {
        let left = node.child_by_field_name("left")?;
        let right = node.child_by_field_name("right")?;
        let operator = syntax.text(node.child_by_field_name("operator")?);
        let adds = operator == "+=" || syntax.text(right).contains(syntax.text(left));
        let (x, y) = product(syntax, right).filter(|_| adds)?;
        let mut update = Update {
            node,
            target: names(syntax, left).into_iter().next()?,
            local: false,
            indexed: descendants(left)
                .iter()
                .any(|n| n.kind() == "subscript_expression"),
            hoisted: false,
            rows: Vec::new(),
            columns: Vec::new(),
        };
        update.local = locals.is_local(&update.target);
        for factor in [x, y] {
            let mut used = names(syntax, factor);
            if let Some(first) = locals
                .locals
                .get(syntax.text(factor))
                .filter(|n| !n.is_empty())
            {
                update.hoisted = true;
                used.clone_from(first);
            }
            let source = used
                .iter()
                .find_map(|n| locals.parameter(n).or(locals.copies.get(n).copied()));
            match source {
                Some(Input::A) => update.rows.extend(used),
                Some(Input::B) => update.columns.extend(used),
                None => {}
            }
        }
        Some(update)
    }

    /// The dimension that a loop variable runs over: `k` if both factors use it, `i` if
    /// only the one from A does, `j` if only the one from B does.
    pub(super) fn dimension(&self, variable: &str) -> Option<char> {
        let uses = |names: &[String]| names.iter().any(|n| n == variable);
        match (uses(&self.rows), uses(&self.columns)) {
            (true, true) => Some('k'),
            (true, false) => Some('i'),
            (false, true) => Some('j'),
            (false, false) => None,
        }
    }
}

/// The factors of the first product of an expression that is not inside a subscript.
fn product<'t>(syntax: &Syntax, node: Node<'t>) -> Option<(Node<'t>, Node<'t>)> {
    match node.kind() {
        "binary_expression" if node.child_by_field_name("operator")?.kind() == "*" => Some((
            node.child_by_field_name("left")?,
            node.child_by_field_name("right")?,
        )),
        "binary_expression" | "parenthesized_expression" => (0..node.named_child_count() as u32)
            .find_map(|at| {
                node.named_child(at)
                    .and_then(|child| product(syntax, child))
            }),
        "call_expression" if syntax.text(node).starts_with("__builtin_fma") => {
            let arguments = node.child_by_field_name("arguments")?;
            Some((arguments.named_child(0)?, arguments.named_child(1)?))
        }
        _ => None,
    }
}

/// The identifiers below a node, in the order of the text.
pub(super) fn names(syntax: &Syntax, node: Node) -> Vec<String> {
    let identifiers = descendants(node)
        .into_iter()
        .filter(|n| n.kind() == "identifier");
    identifiers.map(|n| syntax.text(n).to_string()).collect()
}

/// A node and all nodes below it, in the order of the text.
pub(super) fn descendants(node: Node) -> Vec<Node> {
    let mut found = Vec::new();
    let mut stack = vec![node];
    while let Some(node) = stack.pop() {
        found.push(node);
        stack.extend(
            (0..node.child_count() as u32)
                .rev()
                .filter_map(|at| node.child(at)),
        );
    }
    found
}
