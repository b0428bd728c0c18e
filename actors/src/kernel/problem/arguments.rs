//! What a problem's function is passed: sizes, arrays and numbers.

use serde::{Deserialize, Serialize};

use super::expression::Expression;

/// One argument, in the order of the signature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Argument {
    /// Its name, a C identifier.
    pub name: String,
    /// What it is.
    pub kind: ArgumentKind,
}

/// What an argument is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ArgumentKind {
    /// A size, `int`; the shapes list these in order.
    Size,
    /// A double by value.
    Number(Values),
    /// An array.
    Array {
        /// Type of its elements.
        element: Element,
        /// What the function does with it.
        role: Role,
        /// Its length, in elements.
        length: Expression,
        /// What it holds before a call; of [`Role::Out`]: noise.
        values: Values,
    },
}

/// Type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// `double`.
    F64,
    /// `float`.
    F32,
    /// `long long`.
    I64,
    /// `int`.
    I32,
    /// `unsigned char`.
    U8,
}

/// What the function does with an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads it; it cannot write there.
    In,
    /// Writes all of it; what is there before is noise.
    Out,
    /// Reads and writes it.
    InOut,
}

/// How the values before a call are drawn, afresh for each call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Values {
    /// Uniform in [-1, 1), with all bits that the type has.
    Full,
    /// i / 2^bits with |i| <= 2^bits.
    Grid(u32),
    /// Whole numbers, both ends among them.
    Integers(Expression, Expression),
    /// Rising from 0 to this, equal neighbours among them: where the rows of a sparse matrix begin.
    Offsets(Expression),
}

impl Element {
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::U8 => 1,
        }
    }

    /// The type in C.
    pub fn c_name(self) -> &'static str {
        match self {
            Self::F64 => "double",
            Self::F32 => "float",
            Self::I64 => "long long",
            Self::I32 => "int",
            Self::U8 => "unsigned char",
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_real(self) -> bool {
        matches!(self, Self::F64 | Self::F32)
    }

    /// Least and greatest whole number that it holds exactly.
    fn range(self) -> (i64, i64) {
        match self {
            Self::F64 => (-(1 << 53), 1 << 53),
            Self::F32 => (-(1 << 24), 1 << 24),
            Self::I64 => (i64::MIN, i64::MAX),
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::U8 => (0, u8::MAX.into()),
        }
    }
}

impl Role {
    /// Whether the function writes it.
    pub fn is_written(self) -> bool {
        self != Self::In
    }
}

impl Argument {
    /// As a parameter in C.
    pub fn declaration(&self) -> String {
        let name = &self.name;
        match &self.kind {
            ArgumentKind::Size => format!("int {name}"),
            ArgumentKind::Number(_) => format!("double {name}"),
            ArgumentKind::Array { element, role, .. } => {
                let constant = if role.is_written() { "" } else { "const " };
                format!("{constant}{} *restrict {name}", element.c_name())
            }
        }
    }

    /// Whether it can be passed at these sizes; says why not.
    pub(super) fn fits(&self, sizes: &[u32]) -> Result<(), String> {
        let ArgumentKind::Array {
            element,
            length,
            values,
            ..
        } = &self.kind
        else {
            return Ok(());
        };
        let name = &self.name;
        let of = |e: &Expression| {
            let text = e.text();
            e.value(sizes)
                .ok_or_else(|| format!("`{text}` of `{name}` has no value at {sizes:?}"))
        };
        let len = of(length)?;
        if !(1..=MOST_ELEMENTS).contains(&len) {
            return Err(format!(
                "the length of `{name}` is {len} at {sizes:?}; it must be 1 to {MOST_ELEMENTS}"
            ));
        }
        let (least, greatest) = element.range();
        let fits = |n: i64| (least..=greatest).contains(&n);
        match values {
            Values::Integers(low, high) => {
                let (low, high) = (of(low)?, of(high)?);
                if low > high || !fits(low) || !fits(high) {
                    return Err(format!(
                        "the values of `{name}` are {low} to {high} at {sizes:?}, which no {} can be",
                        element.c_name()
                    ));
                }
            }
            Values::Offsets(last) => {
                let last = of(last)?;
                if last < 0 || !fits(last) || (len == 1 && last != 0) {
                    return Err(format!(
                        "`{name}` cannot rise from 0 to {last} in {len} elements at {sizes:?}"
                    ));
                }
            }
            Values::Full | Values::Grid(_) => {}
        }
        Ok(())
    }
}

/// Most elements of an array: 2 GiB of doubles.
const MOST_ELEMENTS: i64 = 1 << 28;
