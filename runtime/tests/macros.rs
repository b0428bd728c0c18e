//! Misuse of the macros is a compile error that names the fix. The expected errors stand beside the cases; after a
//! change that is meant, `TRYBUILD=overwrite cargo test -p corehold --test macros` writes them anew.

#[test]
fn misuse_names_the_fix() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/macros/wrong_*.rs");
}
