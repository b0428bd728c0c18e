//! The objects of this process.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::ObjectError;
use crate::ids::ObjectId;
use crate::wire::{Endpoint, FrameWriter, Opening, WireError};

/// Longest piece that is handed to the transport at once.
const CHUNK: usize = 1 << 20;

/// What comes before an object's bytes.
#[derive(Serialize, Deserialize)]
enum Header {
    Present { len: u64 },
    Missing,
}

pub(crate) struct Store {
    process: u64,
    address: SocketAddr,
    next: AtomicU64,
    objects: Arc<Mutex<HashMap<u64, Bytes>>>,
}

/// Keeps one object in its store for as long as it lives.
#[derive(Debug)]
pub(crate) struct Pin {
    number: u64,
    objects: Arc<Mutex<HashMap<u64, Bytes>>>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut objects = self.objects.lock().expect("no panic while held");
        objects.remove(&self.number);
    }
}

impl Store {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            process: rand::random(),
            address,
            next: AtomicU64::new(1),
            objects: Arc::default(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn put(&self, bytes: Bytes) -> (ObjectId, Pin) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut objects = self.objects.lock().expect("no panic while held");
        objects.insert(number, bytes);
        let id = ObjectId {
            process: self.process,
            number,
        };
        let pin = Pin {
            number,
            objects: self.objects.clone(),
        };
        (id, pin)
    }

    /// How many objects there are, and their bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        let objects = self.objects.lock().expect("no panic while held");
        let bytes = objects.values().map(|bytes| bytes.len() as u64).sum();
        (objects.len() as u64, bytes)
    }

    pub(crate) fn get(&self, id: ObjectId) -> Option<Bytes> {
        if id.process != self.process {
            return None;
        }
        let objects = self.objects.lock().expect("no panic while held");
        objects.get(&id.number).cloned()
    }
}

/// Sends an object to a peer that asked for it.
pub(crate) async fn serve(store: &Store, id: ObjectId, mut writer: FrameWriter) {
    let sent = async {
        let Some(bytes) = store.get(id) else {
            return writer.send(&Header::Missing).await;
        };
        let len = bytes.len() as u64;
        writer.send(&Header::Present { len }).await?;
        for chunk in bytes.chunks(CHUNK) {
            writer.send_raw(chunk).await?;
        }
        Ok(())
    };
    if let Err(e) = sent.await {
        tracing::debug!(object = %id, error = %e, "a fetch broke off");
    }
    writer.finish();
    // Until the peer has it all: dropping a stream that is not finished resets it.
    writer.stopped().await;
}

/// Fetches an object from the process that has it.
pub(crate) async fn fetch(
    endpoint: &Endpoint,
    from: SocketAddr,
    id: ObjectId,
) -> Result<Bytes, ObjectError> {
    let lost = |e: WireError| ObjectError::Lost {
        object: id.to_string(),
        owner: from,
        why: e.to_string(),
    };
    let connection = endpoint.connect(from).await.map_err(lost)?;
    let (_writer, mut reader) = connection.open(&Opening::Object(id)).await.map_err(lost)?;
    match reader.recv::<Header>().await.map_err(lost)? {
        Some(Header::Present { len }) => {
            Ok(reader.recv_raw(len as usize).await.map_err(lost)?.into())
        }
        Some(Header::Missing) | None => Err(ObjectError::Lost {
            object: id.to_string(),
            owner: from,
            why: "its owner does not keep it any more".to_owned(),
        }),
    }
}
