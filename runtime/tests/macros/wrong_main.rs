use corehold::prelude::*;

#[corehold::main]
fn main(cluster: Cluster) -> corehold::Result<()> {
    let _ = cluster;
    Ok(())
}
