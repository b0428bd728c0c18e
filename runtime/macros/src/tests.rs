//! A wrong use is a compile error that names the fix. What the compiler says of types (an actor without the attribute, a
//! message that is no serde type) is shown by the `compile_fail` examples of `corehold::actor::{RemoteActor, Accepts}`.

use proc_macro2::TokenStream;
use quote::quote;

use super::{write_actor, write_handler, write_main};

/// The item is still there, and beside it an error of these parts.
fn assert_error(written: TokenStream, item: &TokenStream, parts: &[&str]) {
    let written = written.to_string();
    assert!(written.starts_with(&item.to_string()), "{written}");
    assert!(written.contains("compile_error !"), "{written}");
    for part in parts {
        assert!(written.contains(part), "{part} is not in: {written}");
    }
}

#[test]
fn actor_takes_concurrency_and_nothing_else() {
    let item = quote!(
        impl Actor for Counter {
            type Context = Context<Self>;
        }
    );
    for args in [
        quote!(threads = 4),
        quote!(concurrency),
        quote!(concurrency = many),
        quote!("4"),
        quote!(concurrency = 4, name = "x"),
    ] {
        let written = write_actor(args, item.clone());
        assert_error(
            written,
            &item,
            &["#[corehold::actor] takes `concurrency = N`"],
        );
    }
    for args in [quote!(concurrency = 0), quote!(concurrency = 10_001)] {
        let written = write_actor(args, item.clone());
        assert_error(written, &item, &["from 1 to 10000", "leave it out for one"]);
    }
    let right = write_actor(quote!(concurrency = 8), item.clone()).to_string();
    assert!(right.contains("const CONCURRENCY : usize = 8"), "{right}");
    let plain = write_actor(quote!(), item).to_string();
    assert!(
        !plain.contains("CONCURRENCY") && !plain.contains("compile_error"),
        "{plain}"
    );
}

#[test]
fn an_attribute_in_the_wrong_place_names_the_right_one() {
    let inherent = quote!(
        impl Counter {
            fn new() {}
        }
    );
    let written = write_actor(quote!(), inherent.clone());
    assert_error(
        written,
        &inherent,
        &["stands on `impl Actor for YourActor`"],
    );
    let actor = quote!(impl Actor for Counter {});
    let written = write_handler(quote!(), actor.clone());
    assert_error(
        written,
        &actor,
        &["stands on `impl Handler<M> for YourActor`"],
    );
    let no_message = quote!(impl Handler for Counter {});
    let written = write_handler(quote!(), no_message.clone());
    assert_error(
        written,
        &no_message,
        &["stands on `impl Handler<M> for YourActor`"],
    );
    let sync = quote!(
        fn main(cluster: Cluster) {}
    );
    let written = write_main(quote!(), sync.clone());
    assert_error(written, &sync, &["`async fn main(cluster: Cluster)"]);
    let other = quote!(
        async fn program(cluster: Cluster) {}
    );
    let written = write_main(quote!(), other.clone());
    assert_error(written, &other, &["the program's `main`"]);
}

#[test]
fn generic_actors_and_stray_arguments_are_refused() {
    let generic = quote!(
        impl<T> Actor for Counter<T> {}
    );
    let written = write_actor(quote!(), generic.clone());
    assert_error(
        written,
        &generic,
        &["write the impl for each concrete type"],
    );
    let handler = quote!(impl Handler<Add> for Counter {});
    let written = write_handler(quote!(concurrency = 4), handler.clone());
    assert_error(written, &handler, &["this attribute takes no arguments"]);
}
