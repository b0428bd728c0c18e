//! The attributes of corehold. They add to what they stand on and change nothing in it: what a reader sees is
//! plain actix.
#![deny(missing_docs)]

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned as _;
use syn::{
    Error, GenericArgument, Ident, ItemFn, ItemImpl, LitInt, PathArguments, Result, Token, Type,
};

/// On `impl Actor for A`: `A` can be spawned on a cluster. `A` must be `Serialize` and `Deserialize`: its value
/// travels to the node and begins each of its lives.
///
/// Its handlers run one at a time, async ones to the end of their future. With `#[corehold::actor(concurrency = 8)]`
/// up to 8 of its async handlers are at work at once.
#[proc_macro_attribute]
pub fn actor(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    write_actor(args.into(), item.into()).into()
}

fn write_actor(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(args, item, |args: ActorArgs, item: ItemImpl| {
        let actor = implementor(&item, "Actor", "#[corehold::actor]")?;
        let name = type_name(actor)?;
        let concurrency = args
            .concurrency
            .map(|n| quote!(const CONCURRENCY: usize = #n;));
        Ok(quote! {
            #item

            impl ::corehold::actor::RemoteActor for #actor {
                const TYPE_NAME: &'static str = ::core::concat!(::core::module_path!(), "::", #name);
                #concurrency
            }

            ::corehold::private::inventory::submit! {
                ::corehold::actor::ActorType::of::<#actor>()
            }
        })
    })
}

/// On `impl Handler<M> for A`: `A` receives `M` from other processes. `M` and its result must be `Serialize`
/// and `Deserialize`; the result may also be `corehold::Replies` of such a type, for many replies.
#[proc_macro_attribute]
pub fn handler(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    write_handler(args.into(), item.into()).into()
}

fn write_handler(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(args, item, |_: NoArgs, item: ItemImpl| {
        let actor = implementor(&item, "Handler", "#[corehold::handler]")?;
        let message = message(&item)?;
        Ok(quote! {
            #item

            impl ::corehold::actor::Accepts<#message> for #actor {}

            ::corehold::private::inventory::submit! {
                ::corehold::actor::Method::of::<#actor, #message>()
            }
        })
    })
}

/// On `async fn main(cluster: Cluster) -> Result<(), E>`: the program is a driver of the cluster; in the
/// processes that the cluster launches, it is the head or a node.
#[proc_macro_attribute]
pub fn main(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    write_main(args.into(), item.into()).into()
}

fn write_main(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(args, item, |_: NoArgs, item: ItemFn| {
        let signature = &item.sig;
        if signature.asyncness.is_none() || signature.inputs.len() != 1 {
            return Err(Error::new(
                signature.span(),
                "#[corehold::main] stands on `async fn main(cluster: Cluster) -> corehold::Result<()>`",
            ));
        }
        if signature.ident != "main" {
            return Err(Error::new(
                signature.ident.span(),
                "#[corehold::main] stands on the program's `main`",
            ));
        }
        let (inputs, output, body, attrs) = (
            &signature.inputs,
            &signature.output,
            &item.block,
            &item.attrs,
        );
        Ok(quote! {
            #(#attrs)*
            fn main() -> ::std::process::ExitCode {
                async fn main(#inputs) #output #body
                ::corehold::entry::run(main)
            }
        })
    })
}

/// The arguments of an attribute that takes none.
struct NoArgs;

impl Parse for NoArgs {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.is_empty() {
            return Ok(NoArgs);
        }
        Err(input.error("this attribute takes no arguments"))
    }
}

/// The arguments of `#[corehold::actor]`.
struct ActorArgs {
    concurrency: Option<usize>,
}

impl Parse for ActorArgs {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut args = ActorArgs { concurrency: None };
        while !input.is_empty() {
            let key: Ident = input.parse().map_err(|e| Error::new(e.span(), KNOWN))?;
            if key != "concurrency" {
                return Err(Error::new(key.span(), KNOWN));
            }
            input
                .parse::<Token![=]>()
                .map_err(|e| Error::new(e.span(), KNOWN))?;
            let n: LitInt = input.parse().map_err(|e| Error::new(e.span(), KNOWN))?;
            match n.base10_parse() {
                Ok(value @ 1..=10_000) => args.concurrency = Some(value),
                _ => {
                    return Err(Error::new(
                        n.span(),
                        "a concurrency is from 1 to 10000; leave it out for one handler at a time",
                    ));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(args)
    }
}

const KNOWN: &str =
    "#[corehold::actor] takes `concurrency = N` (async handlers at work at once) and nothing else";

fn expand<A: Parse, T: Parse>(
    args: TokenStream,
    item: TokenStream,
    write: impl FnOnce(A, T) -> Result<TokenStream>,
) -> TokenStream {
    let original = item.clone();
    let written = syn::parse2(args).and_then(|args| write(args, syn::parse2(item)?));
    written.unwrap_or_else(|e| {
        // The item stays, so that the one mistake is not reported a second time wherever it is used.
        let error = e.to_compile_error();
        quote!(#original #error)
    })
}

fn implementor<'a>(item: &'a ItemImpl, wanted: &str, attribute: &str) -> Result<&'a Type> {
    let implements = item
        .trait_
        .as_ref()
        .and_then(|(path, _)| path.segments.last());
    if implements.is_none_or(|s| s.ident != wanted) {
        let what = if wanted == "Handler" {
            "Handler<M>"
        } else {
            wanted
        };
        return Err(Error::new(
            item.span(),
            format!("{attribute} stands on `impl {what} for YourActor`"),
        ));
    }
    if !item.generics.params.is_empty() {
        return Err(Error::new(
            item.generics.span(),
            "a remote actor has no generic parameters: its type must have one name on the wire; \
             write the impl for each concrete type",
        ));
    }
    Ok(&item.self_ty)
}

fn type_name(actor: &Type) -> Result<String> {
    match actor {
        Type::Path(path) => path
            .path
            .segments
            .last()
            .map(|s| s.ident.to_string())
            .ok_or_else(|| Error::new(actor.span(), "a type without a name")),
        _ => Err(Error::new(actor.span(), "an actor is a struct or an enum")),
    }
}

fn message(item: &ItemImpl) -> Result<&Type> {
    let segment = item
        .trait_
        .as_ref()
        .and_then(|(path, _)| path.segments.last());
    if let Some(segment) = segment
        && let PathArguments::AngleBracketed(args) = &segment.arguments
        && let Some(GenericArgument::Type(message)) = args.args.first()
    {
        return Ok(message);
    }
    Err(Error::new(
        item.span(),
        "#[corehold::handler] stands on `impl Handler<M> for YourActor`",
    ))
}

#[cfg(test)]
mod tests;
