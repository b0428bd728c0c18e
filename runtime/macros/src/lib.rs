//! The attributes of corehold.
