//! Expressions over the sizes of a call: lengths of arrays, bounds of values, the work of a call.
//!
//! Integers, names of sizes, `+ - * /` (division rounds towards zero) and parentheses, with C's precedence.

use serde::{Deserialize, Serialize};

/// Deepest nesting of parentheses and signs.
const DEEPEST: usize = 32;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expression {
    text: String,
    /// In reverse Polish notation.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    Number(i64),
    Size(usize),
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Expression {
    /// Parses `text`; a name is one of `sizes`.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str, sizes: &[String]) -> Result<Self, String> {
        let mut parser = Parser {
            rest: text,
            sizes,
            steps: Vec::new(),
            depth: 0,
        };
        let parsed = parser.sum().and_then(|()| match parser.peek() {
            None => Ok(()),
            Some(c) => Err(format!("`{c}` where an operator or the end is expected")),
        });
        match parsed {
            Ok(()) => Ok(Self {
                text: text.to_owned(),
                steps: parser.steps,
            }),
            Err(why) => Err(format!("in `{text}`: {why}")),
        }
    }

    /// The value for these sizes, in the order that [`Expression::parse`] was given; `None` where it does not
    /// fit 64 bits or divides by zero.
    pub fn value(&self, sizes: &[u32]) -> Option<i64> {
        let mut stack = Vec::new();
        for step in &self.steps {
            let value = match *step {
                Step::Number(n) => n,
                Step::Size(at) => i64::from(*sizes.get(at)?),
                ref operator => {
                    let (b, a): (i64, i64) = (stack.pop()?, stack.pop()?);
                    match operator {
                        Step::Add => a.checked_add(b)?,
                        Step::Subtract => a.checked_sub(b)?,
                        Step::Multiply => a.checked_mul(b)?,
                        _ => a.checked_div(b)?,
                    }
                }
            };
            stack.push(value);
        }
        stack.pop()
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

struct Parser<'a> {
    rest: &'a str,
    sizes: &'a [String],
    steps: Vec<Step>,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let there = self.peek() == Some(c);
        if there {
            self.rest = &self.rest[c.len_utf8()..];
        }
        there
    }

    fn sum(&mut self) -> Result<(), String> {
        self.product()?;
        loop {
            let step = match self.peek() {
                Some('+') => Step::Add,
                Some('-') => Step::Subtract,
                _ => return Ok(()),
            };
            self.rest = &self.rest[1..];
            self.product()?;
            self.steps.push(step);
        }
    }

    fn product(&mut self) -> Result<(), String> {
        self.atom()?;
        loop {
            let step = match self.peek() {
                Some('*') => Step::Multiply,
                Some('/') => Step::Divide,
                _ => return Ok(()),
            };
            self.rest = &self.rest[1..];
            self.atom()?;
            self.steps.push(step);
        }
    }

    fn atom(&mut self) -> Result<(), String> {
        if self.depth == DEEPEST {
            return Err(format!("nested deeper than {DEEPEST}"));
        }
        self.depth += 1;
        let done = self.atom_inside();
        self.depth -= 1;
        done
    }

    fn atom_inside(&mut self) -> Result<(), String> {
        if self.take('(') {
            self.sum()?;
            return if self.take(')') {
                Ok(())
            } else {
                Err("a `)` is missing".into())
            };
        }
        if self.take('-') {
            self.steps.push(Step::Number(0));
            self.atom()?;
            self.steps.push(Step::Subtract);
            return Ok(());
        }
        let expected = "a number, a size or `(` is expected";
        match self.peek() {
            None => return Err(format!("it ends where {expected}")),
            Some(c) if !c.is_ascii_alphanumeric() && c != '_' => {
                return Err(format!("`{c}` where {expected}"));
            }
            Some(_) => {}
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !word(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        let step = match self.sizes.iter().position(|s| s == name) {
            Some(at) => Step::Size(at),
            None if name.starts_with(|c: char| c.is_ascii_digit()) => Step::Number(
                name.parse()
                    .map_err(|_| format!("`{name}` is no number of 64 bits"))?,
            ),
            None => {
                let known = self.sizes.join(", ");
                return Err(format!("`{name}` is no size; the sizes are {known}"));
            }
        };
        self.steps.push(step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes() -> Vec<String> {
        ["m", "n", "nnz"].map(String::from).to_vec()
    }

    /// A random expression as text, and its value by ordinary arithmetic.
    fn expressions() -> impl Strategy<Value = (String, Option<i64>)> {
        let leaf = prop_oneof![
            (0i64..1000).prop_map(|n| (n.to_string(), Some(n))),
            Just(("m".to_owned(), Some(3))),
            Just(("n".to_owned(), Some(5))),
            Just(("nnz".to_owned(), Some(70_000))),
        ];
        leaf.prop_recursive(5, 40, 2, |inner| {
            (inner.clone(), inner, 0..5u8).prop_map(|((a, x), (b, y), operator)| {
                let both = |f: fn(i64, i64) -> Option<i64>| x.zip(y).and_then(|(x, y)| f(x, y));
                match operator {
                    0 => (format!("({a} + {b})"), both(i64::checked_add)),
                    1 => (format!("({a}-{b})"), both(i64::checked_sub)),
                    2 => (format!("({a})*({b})"), both(i64::checked_mul)),
                    3 => (format!("({a} / ({b}))"), both(i64::checked_div)),
                    _ => (format!("(-({a}))"), x.and_then(|x| 0i64.checked_sub(x))),
                }
            })
        })
    }

    proptest! {
        #[test]
        fn the_value_is_that_of_ordinary_arithmetic((text, value) in expressions()) {
            // A product of products that no parentheses hold together would bind otherwise.
            let parsed = Expression::parse(&format!("({text})"), &sizes());
            if let Ok(parsed) = parsed {
                prop_assert_eq!(parsed.value(&[3, 5, 70_000]), value);
            } else {
                prop_assert!(parsed.unwrap_err().contains("nested"));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[mnz0-9+*/() _-]{0,40}|\\PC{0,20}") {
            match Expression::parse(&text, &sizes()) {
                Ok(parsed) => { let _ = parsed.value(&[1, 2, u32::MAX]); }
                Err(why) => prop_assert!(why.contains(&text)),
            }
        }
    }

    #[test]
    fn precedence_and_order_are_those_of_c() {
        for (text, value) in [
            ("2 * m*n + 1", 31),
            ("1 + 2*3 - 4/2 - 1", 4),
            ("100 / 7 / 2", 7),
            ("10 - 3 - 2", 5),
            ("2*(m + n)", 16),
            ("-m + 4", 1),
            ("8 * nnz", 560_000),
        ] {
            let parsed = Expression::parse(text, &sizes()).unwrap();
            assert_eq!(parsed.value(&[3, 5, 70_000]), Some(value), "{text}");
        }
        for (text, why) in [
            ("", "ends"),
            ("m +", "ends"),
            ("m n", "operator"),
            ("(m", "`)`"),
            ("k * 2", "sizes are m, n, nnz"),
            ("2 ^ 3", "`^`"),
            ("99999999999999999999", "64 bits"),
        ] {
            let said = Expression::parse(text, &sizes()).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let over = Expression::parse("1/(m - 3)", &sizes()).unwrap();
        assert_eq!(over.value(&[3, 0, 0]), None);
    }
}
