//! What the compiler says of programs that use the attributes wrongly: each error names the fix.
//!
//! After a change of the attributes, or for another compiler, see what it says now with `TRYBUILD=overwrite cargo test -p
//! corehold --test misuse`, read it, and keep it.

/// The compiler whose words are expected: others say the same in other words.
const SPOKEN_BY: &str = "rustc 1.95.";

#[test]
fn errors_name_the_fix() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = std::process::Command::new(rustc).arg("--version").output();
    let version = String::from_utf8(version.unwrap().stdout).unwrap();
    if !version.starts_with(SPOKEN_BY) {
        println!("SKIPPED: the expected words are of {SPOKEN_BY}x, this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
