//! An actor that dies in every way there is.

use corehold::prelude::*;

#[derive(Default, Serialize, Deserialize)]
pub struct Mortal {
    pub count: u64,
}

#[corehold::actor]
impl Actor for Mortal {
    type Context = Context<Self>;
}

/// How to die, or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Way {
    /// A null pointer is written to, as native code would.
    Segfault,
    Abort,
    Exit(i32),
    Overflow,
    Panic,
    /// That many MiB are touched.
    Eat(usize),
    /// For ever.
    Hang,
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
pub struct Die(pub Way);

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "(u32, u64)")]
pub struct Count;

/// Writes to standard output and error, and by `tracing`.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct Say(pub String);

/// Starts `sleep 1000`, gives its pid.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "i32")]
pub struct Fork;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<(u32, u64), AskError>")]
pub struct CountOf(pub Handle<Mortal>);

unsafe extern "C" {
    fn abort() -> !;
    fn strlen(s: *const std::ffi::c_char) -> usize;
}

#[allow(unconditional_recursion)]
fn deep(n: u64) -> u64 {
    let pad = std::hint::black_box([n; 512]);
    deep(n + 1) + pad[n as usize % 512]
}

#[corehold::handler]
impl Handler<Die> for Mortal {
    type Result = u64;
    fn handle(&mut self, Die(way): Die, _: &mut Self::Context) -> u64 {
        match way {
            // SAFETY: none: it is to crash, in libc, as bad native code does.
            Way::Segfault => unsafe { strlen(std::hint::black_box(8 as *const _)) as u64 },
            // SAFETY: ends the process.
            Way::Abort => unsafe { abort() },
            Way::Exit(status) => std::process::exit(status),
            Way::Overflow => deep(0),
            Way::Panic => panic!("enough"),
            Way::Eat(mib) => {
                let mut eaten = vec![0u8; mib << 20];
                eaten.iter_mut().step_by(4096).for_each(|b| *b = 1);
                std::hint::black_box(&eaten).len() as u64
            }
            Way::Hang => loop {
                std::thread::park();
            },
        }
    }
}

#[corehold::handler]
impl Handler<Count> for Mortal {
    type Result = actix::MessageResult<Count>;
    fn handle(&mut self, _: Count, _: &mut Self::Context) -> Self::Result {
        self.count += 1;
        actix::MessageResult((std::process::id(), self.count))
    }
}

#[corehold::handler]
impl Handler<Say> for Mortal {
    type Result = ();
    fn handle(&mut self, Say(what): Say, _: &mut Self::Context) {
        println!("out: {what}");
        eprintln!("err: {what}");
        tracing::info!("log: {what}");
    }
}

#[corehold::handler]
impl Handler<Fork> for Mortal {
    type Result = i32;
    fn handle(&mut self, _: Fork, _: &mut Self::Context) -> i32 {
        let child = std::process::Command::new("sleep").arg("1000").spawn();
        child.unwrap().id() as i32
    }
}

#[corehold::handler]
impl Handler<CountOf> for Mortal {
    type Result = actix::ResponseFuture<Result<(u32, u64), AskError>>;
    fn handle(&mut self, CountOf(other): CountOf, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move { other.ask(Count).await })
    }
}

/// Waits for the death of another; gives its cause as text.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<String, String>")]
pub struct Watch(pub Handle<Mortal>);

/// Spawns an actor of this name; it ends with the life of the one that is asked, or with nobody.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<Handle<Mortal>, String>")]
pub struct Bear {
    pub name: String,
    pub detached: bool,
}

/// Saves its state; gives its count.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<u64, String>")]
pub struct Save;

#[corehold::handler]
impl Handler<Watch> for Mortal {
    type Result = actix::ResponseFuture<Result<String, String>>;
    fn handle(&mut self, Watch(other): Watch, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move {
            let record = other.closed().await.map_err(|e| e.to_string())?;
            Ok(record.to_string())
        })
    }
}

#[corehold::handler]
impl Handler<Bear> for Mortal {
    type Result = actix::ResponseFuture<Result<Handle<Mortal>, String>>;
    fn handle(&mut self, Bear { name, detached }: Bear, _: &mut Self::Context) -> Self::Result {
        let cluster = Cluster::current();
        Box::pin(async move {
            let spawn = cluster
                .map_err(|e| e.to_string())?
                .actor(Mortal::default())
                .name(name);
            let spawn = if detached { spawn.detached() } else { spawn };
            spawn.spawn().await.map_err(|e| e.to_string())
        })
    }
}

#[corehold::handler]
impl Handler<Save> for Mortal {
    type Result = actix::ResponseFuture<Result<u64, String>>;
    fn handle(&mut self, _: Save, _: &mut Self::Context) -> Self::Result {
        let (saved, count) = (corehold::save(self), self.count);
        Box::pin(async move { saved.await.map(|()| count).map_err(|e| e.to_string()) })
    }
}

/// The cores that the process may run on.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<usize>")]
pub struct Cores;

#[corehold::handler]
impl Handler<Cores> for Mortal {
    type Result = Vec<usize>;
    fn handle(&mut self, _: Cores, _: &mut Self::Context) -> Vec<usize> {
        let pid = nix::unistd::Pid::from_raw(std::process::id() as i32);
        let set = nix::sched::sched_getaffinity(pid).unwrap();
        (0..nix::sched::CpuSet::count())
            .filter(|core| set.is_set(*core).unwrap())
            .collect()
    }
}
