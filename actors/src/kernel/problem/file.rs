//! `problem.toml` as written, and what is asked of it.

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::{
    Argument, ArgumentKind, Caches, Check, Element, Expression, Problem, ProblemError, Role,
    RuleSet, Unit, Values,
};
use crate::kernel::sealed::{MAX_ARRAYS, MAX_REALS, MAX_WORDS};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    symbol: String,
    arguments: Vec<Spanned<Raw>>,
    work: String,
    unit: Unit,
    #[serde(default = "one")]
    ceiling: f64,
    check: Check,
    #[serde(default = "eight")]
    calls_a_batch: u32,
    timed_shape: Vec<u32>,
    #[serde(default)]
    caches: Caches,
    check_shapes: Vec<Vec<u32>>,
    #[serde(default)]
    prelude: String,
    #[serde(default)]
    prelude_calls: Vec<String>,
    #[serde(default)]
    prelude_types: Vec<String>,
    #[serde(default)]
    support: String,
    description: String,
    rules: RuleSet,
}

fn one() -> f64 {
    1.0
}

fn eight() -> u32 {
    8
}

/// An argument as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    r#type: Type,
    role: Option<Role>,
    length: Option<String>,
    values: Option<RawValues>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Size,
    Number,
    F64,
    F32,
    I64,
    I32,
    U8,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawValues {
    Full,
    Grid(u32),
    Integers([String; 2]),
    Offsets(String),
}

/// Most shapes that are checked: each is run twice, with others drawn at random, in one session.
const MOST_SHAPES: usize = 24;
/// Most bits of a grid's values: a product of two must fit double precision.
const MOST_BITS: u32 = 26;

/// Reads the text of a `problem.toml`.
pub(super) fn parse(path: &Path, text: &str, reference: &str) -> Result<Problem, ProblemError> {
    let invalid = |line: usize, message: String| ProblemError::Invalid {
        path: path.to_path_buf(),
        line,
        message,
    };
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        let key = text.lines().nth(line - 1).and_then(key_of);
        let of = key.map(|key| format!("`{key}`: ")).unwrap_or_default();
        invalid(line, format!("{of}{}", error.message()))
    })?;
    let at = |key: &str, message: String| {
        let lines = text.lines().position(|line| key_of(line) == Some(key));
        invalid(lines.map_or(1, |at| at + 1), format!("`{key}`: {message}"))
    };
    let sizes: Vec<String> = file
        .arguments
        .iter()
        .map(Spanned::get_ref)
        .filter(|raw| raw.r#type == Type::Size)
        .map(|raw| raw.name.clone())
        .collect();
    let mut arguments: Vec<Argument> = Vec::new();
    for spanned in &file.arguments {
        let read = argument(spanned.get_ref(), &sizes).and_then(|read| {
            if arguments.iter().any(|a| a.name == read.name) {
                return Err(format!("`{}` is there twice", read.name));
            }
            Ok(read)
        });
        let line = line_of(text, spanned.span().start);
        arguments.push(read.map_err(|message| invalid(line, format!("`arguments`: {message}")))?);
    }
    let good = |shape: &[u32]| -> Result<(), String> {
        let most = i32::MAX as u32;
        if shape.len() != sizes.len() || shape.iter().any(|n| !(1..=most).contains(n)) {
            return Err(format!(
                "a shape is {} positive numbers: {}",
                sizes.len(),
                sizes.join(", ")
            ));
        }
        arguments.iter().try_for_each(|a| a.fits(shape))
    };
    if !is_identifier(&file.symbol) {
        let message = format!("`{}` is no name of a C function", file.symbol);
        return Err(at("symbol", message));
    }
    good(&file.timed_shape).map_err(|message| at("timed_shape", message))?;
    if !(1..=MOST_SHAPES).contains(&file.check_shapes.len()) {
        let message = format!("it must list 1 to {MOST_SHAPES} shapes");
        return Err(at("check_shapes", message));
    }
    for shape in &file.check_shapes {
        good(shape).map_err(|message| at("check_shapes", message))?;
    }
    let work = Expression::parse(&file.work, &sizes).map_err(|message| at("work", message))?;
    if work.value(&file.timed_shape).is_none_or(|n| n < 1) {
        let message = "it must be above 0 at the timed shape".to_owned();
        return Err(at("work", message));
    }
    if !(file.ceiling > 0.0 && file.ceiling <= 1000.0) {
        return Err(at("ceiling", "it must be above 0, and 1000 at most".into()));
    }
    if file.calls_a_batch == 0 {
        return Err(at("calls_a_batch", "it must be 1 at least".into()));
    }
    let parameters: Vec<String> = arguments.iter().map(Argument::declaration).collect();
    let problem = Problem {
        name: file.name,
        signature: format!("void {}({})", file.symbol, parameters.join(", ")),
        symbol: file.symbol,
        dimensions: sizes,
        arguments,
        work,
        unit: file.unit,
        ceiling: file.ceiling,
        check: file.check,
        calls_a_batch: file.calls_a_batch,
        timed_shape: file.timed_shape,
        caches: file.caches,
        check_shapes: file.check_shapes,
        prelude: file.prelude,
        prelude_calls: file.prelude_calls,
        prelude_types: file.prelude_types,
        support: file.support,
        description: file.description,
        rules: file.rules,
        reference: reference.to_string(),
    };
    whole(&problem).map_err(|(key, message)| at(key, message))?;
    Ok(problem)
}

/// An argument, by itself.
fn argument(raw: &Raw, sizes: &[String]) -> Result<Argument, String> {
    let name = raw.name.clone();
    if !is_identifier(&name) {
        return Err(format!("`{name}` is no name of a C variable"));
    }
    let element = match raw.r#type {
        Type::Size | Type::Number => {
            if raw.role.is_some() || raw.length.is_some() {
                return Err(format!(
                    "`{name}` is passed by value: it has no role or length"
                ));
            }
            let kind = match (raw.r#type, &raw.values) {
                (Type::Size, None) => ArgumentKind::Size,
                (Type::Size, Some(_)) => {
                    return Err(format!("`{name}` is a size: the shapes give its values"));
                }
                (_, given) => match drawn(given.as_ref(), sizes)? {
                    values @ (Values::Full | Values::Grid(_)) => ArgumentKind::Number(values),
                    _ => {
                        return Err(format!(
                            "`{name}` is a double: its values are `full` or a `grid`"
                        ));
                    }
                },
            };
            return Ok(Argument { name, kind });
        }
        Type::F64 => Element::F64,
        Type::F32 => Element::F32,
        Type::I64 => Element::I64,
        Type::I32 => Element::I32,
        Type::U8 => Element::U8,
    };
    let Some(role) = raw.role else {
        return Err(format!(
            "`{name}` is an array: its `role` is missing (in, out or inout)"
        ));
    };
    let Some(length) = &raw.length else {
        let known = sizes.join(", ");
        return Err(format!(
            "`{name}` is an array: its `length` is missing, from {known}"
        ));
    };
    let length = Expression::parse(length, sizes).map_err(|e| format!("length of `{name}` {e}"))?;
    if role == Role::Out && raw.values.is_some() {
        return Err(format!("`{name}` is only written: it has no `values`"));
    }
    let values =
        drawn(raw.values.as_ref(), sizes).map_err(|e| format!("values of `{name}` {e}"))?;
    let fits = match &values {
        _ if role == Role::Out => true,
        Values::Full | Values::Grid(_) => element.is_real(),
        Values::Integers(..) => true,
        Values::Offsets(_) => matches!(element, Element::I32 | Element::I64),
    };
    if !fits {
        return Err(format!(
            "`{name}` holds {}: `full` and `grid` are for f64 and f32 (whole numbers want `integers`), `offsets` for i32 \
             and i64",
            element.c_name()
        ));
    }
    if element == Element::F32 && matches!(values, Values::Grid(24..)) {
        return Err(format!("`{name}` is f32: a grid has 23 bits at most there"));
    }
    let kind = ArgumentKind::Array {
        element,
        role,
        length,
        values,
    };
    Ok(Argument { name, kind })
}

fn drawn(raw: Option<&RawValues>, sizes: &[String]) -> Result<Values, String> {
    Ok(match raw {
        None | Some(RawValues::Full) => Values::Full,
        Some(RawValues::Grid(bits @ 1..=MOST_BITS)) => Values::Grid(*bits),
        Some(RawValues::Grid(bits)) => {
            return Err(format!("a grid has 1 to {MOST_BITS} bits, not {bits}"));
        }
        Some(RawValues::Integers([low, high])) => Values::Integers(
            Expression::parse(low, sizes)?,
            Expression::parse(high, sizes)?,
        ),
        Some(RawValues::Offsets(last)) => Values::Offsets(Expression::parse(last, sizes)?),
    })
}

/// What is asked of the arguments together; else the key and the message.
fn whole(problem: &Problem) -> Result<(), (&'static str, String)> {
    let arrays = |role: Option<bool>| {
        problem.arguments.iter().filter(move |a| {
            matches!(&a.kind, ArgumentKind::Array { role: r, .. } if role.is_none_or(|w| r.is_written() == w))
        })
    };
    let numbers = problem
        .arguments
        .iter()
        .filter(|a| matches!(a.kind, ArgumentKind::Number(_)));
    let numbers = numbers.count();
    let extra = match problem.check {
        Check::Bounded => problem.written(),
        _ => 0,
    };
    let words = problem.arguments.len() - numbers + extra;
    let say = |message: String| Err(("arguments", message));
    if problem.dimensions.is_empty() {
        return say("at least one argument must be a size".into());
    }
    if problem.written() == 0 {
        return say("at least one array must be `out` or `inout`".into());
    }
    if words > MAX_WORDS || numbers > MAX_REALS || arrays(None).count() > MAX_ARRAYS {
        return say(format!(
            "at most {MAX_WORDS} sizes and arrays (with `bounded`, an array that is written counts twice), {MAX_ARRAYS} \
             of them arrays, and {MAX_REALS} numbers can be passed"
        ));
    }
    let integer = |a: &&Argument| matches!(&a.kind, ArgumentKind::Array { element, .. } if !element.is_real());
    match problem.check {
        Check::Freivalds if !is_product(problem) => Err((
            "check",
            "`freivalds` is for C += A B in double precision, whose arguments are the sizes m, n, k, then a (in, m * k), b \
             (in, k * n) and c (inout, m * n), f64, without `values`: it makes its own. Others are checked `exact` or `bounded`"
                .into(),
        )),
        Check::Bounded if arrays(Some(true)).any(|a| integer(&a)) => Err((
            "check",
            "whole numbers are right or wrong: `bounded` is for results in f64 or f32, `exact` for all".into(),
        )),
        _ => Ok(()),
    }
}

fn is_product(problem: &Problem) -> bool {
    // Lengths are m k, k n and m n; two shapes tell.
    let lengths = [([3, 5, 7], [21, 35, 15]), ([11, 2, 13], [143, 26, 22])];
    let array = |at: usize, role: Role| {
        matches!(
            problem.arguments.get(at).map(|a| &a.kind),
            Some(ArgumentKind::Array { element: Element::F64, role: r, length, values: Values::Full })
                if *r == role && lengths.iter().all(|(sizes, of)| length.value(sizes) == Some(of[at - 3]))
        )
    };
    let size = |at: usize| {
        matches!(
            problem.arguments.get(at).map(|a| &a.kind),
            Some(ArgumentKind::Size)
        )
    };
    problem.arguments.len() == 6
        && (0..3).all(size)
        && array(3, Role::In)
        && array(4, Role::In)
        && array(5, Role::InOut)
}

fn is_identifier(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word)
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_uppercase())
}

/// The line, from 1, of a byte offset.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|b| *b == b'\n').count()
}

/// The key that a line sets.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    Some(key.trim()).filter(|key| is_identifier(key))
}
