//! Reads TOML tables by hand, key by key, so that every error knows its place.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, ConfigErrorKind, Position};
use crate::cluster::demand::Milli;
use crate::cluster::suggest::did_you_mean;

type Result<T> = std::result::Result<T, ConfigError>;

/// The text that is read, and where it is from.
pub(super) struct Source<'a> {
    pub(super) origin: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn position(&self, offset: usize) -> Position {
        Position::of(self.text, offset)
    }

    pub(super) fn error(&self, at: Option<Position>, kind: ConfigErrorKind) -> ConfigError {
        ConfigError {
            origin: self.origin.to_owned(),
            at,
            kind: Box::new(kind),
        }
    }
}

/// A table, of which only known keys are left.
pub(super) struct Table<'a> {
    source: &'a Source<'a>,
    place: String,
    at: Position,
    entries: &'a DeTable<'a>,
}

/// A value with its key.
pub(super) struct Value<'a> {
    source: &'a Source<'a>,
    pub(super) key: &'a str,
    pub(super) at: Position,
    value: &'a DeValue<'a>,
}

impl<'a> Table<'a> {
    /// `known` empty: any key is known.
    pub(super) fn new(
        source: &'a Source<'a>,
        place: String,
        at: Position,
        entries: &'a DeTable<'a>,
        known: &[&str],
    ) -> Result<Self> {
        for key in entries.keys() {
            let name: &str = key.get_ref();
            if !known.is_empty() && !known.contains(&name) {
                let kind = ConfigErrorKind::UnknownKey {
                    key: name.to_owned(),
                    place,
                    hint: did_you_mean(name, known.iter().copied()),
                    known: known.join(", "),
                };
                return Err(source.error(Some(source.position(key.span().start)), kind));
            }
        }
        Ok(Table {
            source,
            place,
            at,
            entries,
        })
    }

    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        let (key, value) = self.entries.get_key_value(key)?;
        Some(self.value(key, value))
    }

    pub(super) fn require(&self, key: &'static str, example: &'static str) -> Result<Value<'a>> {
        self.get(key).ok_or_else(|| {
            let kind = ConfigErrorKind::Missing {
                place: self.place.clone(),
                key,
                example,
            };
            self.source.error(Some(self.at), kind)
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Value<'a>> {
        self.entries
            .iter()
            .map(|(key, value)| self.value(key, value))
    }

    fn value(
        &self,
        key: &'a Spanned<std::borrow::Cow<'a, str>>,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Value<'a> {
        let at = self.source.position(value.span().start);
        Value {
            source: self.source,
            key: key.get_ref(),
            at,
            value: value.get_ref(),
        }
    }
}

impl<'a> Value<'a> {
    pub(super) fn error(&self, kind: ConfigErrorKind) -> ConfigError {
        self.source.error(Some(self.at), kind)
    }

    fn wrong(&self, wanted: &'static str) -> ConfigError {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.error(ConfigErrorKind::WrongType {
            key: self.key.to_owned(),
            wanted,
            found,
        })
    }

    pub(super) fn text(&self) -> Result<&'a str> {
        self.value
            .as_str()
            .ok_or_else(|| self.wrong("a string in double quotes"))
    }

    pub(super) fn flag(&self) -> Result<bool> {
        self.value
            .as_bool()
            .ok_or_else(|| self.wrong("true or false"))
    }

    pub(super) fn whole(&self, least: u32, most: u32) -> Result<u32> {
        let integer = self
            .value
            .as_integer()
            .ok_or_else(|| self.wrong("a whole number"))?;
        let value = i64::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i64::MAX);
        match u32::try_from(value) {
            Ok(value) if (least..=most).contains(&value) => Ok(value),
            _ => Err(self.out_of_range(least.into(), most.into())),
        }
    }

    /// A number, whole or not.
    pub(super) fn number(&self, most: u32) -> Result<f64> {
        let value: f64 = match self.value {
            DeValue::Integer(n) => {
                i64::from_str_radix(n.as_str(), n.radix()).map_or(f64::NAN, |n| n as f64)
            }
            DeValue::Float(n) => n.as_str().parse().unwrap_or(f64::NAN),
            _ => return Err(self.wrong("a number")),
        };
        if (0.0..=f64::from(most)).contains(&value) {
            return Ok(value);
        }
        Err(self.out_of_range(0, most.into()))
    }

    pub(super) fn amount(&self) -> Result<Milli> {
        Milli::try_from(self.number(1_000_000_000)?)
            .map_err(|_| self.out_of_range(0, 1_000_000_000))
    }

    fn out_of_range(&self, least: u64, most: u64) -> ConfigError {
        let found = match self.value {
            DeValue::Integer(n) => n.to_string(),
            DeValue::Float(n) => n.to_string(),
            _ => String::new(),
        };
        self.error(ConfigErrorKind::OutOfRange {
            key: self.key.to_owned(),
            least,
            most,
            found,
        })
    }

    pub(super) fn table(&self, place: String, known: &[&str]) -> Result<Table<'a>> {
        let entries = self.value.as_table().ok_or_else(|| self.wrong("a table"))?;
        Table::new(self.source, place, self.at, entries, known)
    }

    pub(super) fn list(&self, wanted: &'static str) -> Result<Vec<Value<'a>>> {
        let list = self.value.as_array().ok_or_else(|| self.wrong(wanted))?;
        let (source, key) = (self.source, self.key);
        let items = list.iter().map(|item| {
            let at = source.position(item.span().start);
            Value {
                source,
                key,
                at,
                value: item.get_ref(),
            }
        });
        Ok(items.collect())
    }
}
