//! The syntax tree of a kernel. Directives are taken out before parsing: C allows a
//! pragma between a loop's head and its body, the tree's grammar does not.

use tree_sitter::{Node, Parser, Tree};

use crate::kernel::source::{blank, without_comments};
use crate::kernel::verdict::Verdict;

/// One preprocessor line.
pub(in crate::kernel) struct Directive {
    /// Line in the code, from 1.
    pub(in crate::kernel) line: usize,
    /// The line without comments.
    pub(in crate::kernel) text: String,
}

/// A parsed kernel.
pub(in crate::kernel) struct Syntax {
    text: String,
    tree: Tree,
    directives: Vec<Directive>,
}

impl Syntax {
    /// Parses the code; `judge` sees every directive first.
    pub(super) fn parse(
        code: &str,
        judge: impl Fn(&Directive) -> Result<(), Verdict>,
    ) -> Result<Syntax, Verdict> {
        let mut text = String::with_capacity(code.len());
        let mut directives = Vec::new();
        for (at, line) in without_comments(code).lines().enumerate() {
            if line.trim_start().starts_with('#') {
                let directive = Directive {
                    line: at + 1,
                    text: line.to_string(),
                };
                judge(&directive)?;
                directives.push(directive);
                blank(&mut text, line);
            } else {
                text.push_str(line);
            }
            text.push('\n');
        }
        let mut parser = Parser::new();
        let unavailable = || Verdict::FormatViolation("the C parser gave no tree".into());
        parser
            .set_language(&tree_sitter_c::LANGUAGE.into())
            .map_err(|_| unavailable())?;
        let tree = parser.parse(&text, None).ok_or_else(unavailable)?;
        Ok(Syntax {
            text,
            tree,
            directives,
        })
    }

    /// The whole unit.
    pub(in crate::kernel) fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    /// The text of a node.
    pub(in crate::kernel) fn text(&self, node: Node) -> &str {
        &self.text[node.byte_range()]
    }

    /// The preprocessor lines, in order.
    pub(in crate::kernel) fn directives(&self) -> &[Directive] {
        &self.directives
    }

    /// Every node of a kind, in the order of the text.
    pub(in crate::kernel) fn all<'t>(&'t self, kind: &str) -> Vec<Node<'t>> {
        let mut found = Vec::new();
        let mut stack = vec![self.root()];
        while let Some(node) = stack.pop() {
            if node.kind() == kind {
                found.push(node);
            }
            stack.extend(
                (0..node.child_count() as u32)
                    .rev()
                    .filter_map(|at| node.child(at)),
            );
        }
        found
    }
}
