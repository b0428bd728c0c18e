//! Lets programs find libtorch where `cargo xtask setup` put it.

/// Writes libtorch's folder into every program's run path, so that none needs LD_LIBRARY_PATH.
pub fn link() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let Some(libtorch) = std::env::var_os("LIBTORCH") else {
        // The bindings' own build script says what to do.
        return;
    };
    let lib = std::path::Path::new(&libtorch).join("lib");
    match lib.canonicalize() {
        Ok(lib) => println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display()),
        Err(error) => {
            panic!(
                "{}: {error}. Run `cargo xtask setup` first, or build with --no-default-features",
                lib.display()
            )
        }
    }
}
