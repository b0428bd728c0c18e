//! Examples of corehold: see `bin`s.
