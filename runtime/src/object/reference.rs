//! References to objects: they travel in messages, the values do not.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};

use super::store::{Pin, fetch};
use crate::ids::ObjectId;
use crate::process::Process;
use crate::wire::{decode, encode};

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum ObjectError {
    /// Nobody has it any more.
    #[error("{object} of {owner} is lost: {why}")]
    Lost {
        /// Which.
        object: String,
        /// The process that made it.
        owner: SocketAddr,
        /// What happened.
        why: String,
    },
    /// The value could not become bytes, or the bytes are another type's.
    #[error("{0}")]
    Codec(String),
    /// This process is no member of a cluster.
    #[error("{0}")]
    NoCluster(String),
}

/// A reference to an immutable value of type `T`.
///
/// The value lives in the process that put it, for as long as a clone of the reference which
/// [`put`] returned lives there. A reference that came in a message fetches the value but does not keep
/// it alive: whoever hands out references keeps one until they have been used.
pub struct ObjectRef<T> {
    id: ObjectId,
    owner: SocketAddr,
    len: u64,
    pin: Option<Arc<Pin>>,
    of: PhantomData<fn() -> T>,
}

/// Makes `value` an object of this process.
///
/// # Errors
/// [`ObjectError::Codec`] where the value refuses to be serialised, [`ObjectError::NoCluster`] in a process
/// that has joined no cluster.
pub fn put<T: Serialize>(value: &T) -> Result<ObjectRef<T>, ObjectError> {
    let process = Process::current().map_err(|e| ObjectError::NoCluster(e.to_string()))?;
    let bytes = Bytes::from(encode(value).map_err(|e| ObjectError::Codec(e.to_string()))?);
    let len = bytes.len() as u64;
    let (id, pin) = process.objects.put(bytes);
    Ok(ObjectRef {
        id,
        owner: process.objects.address(),
        len,
        pin: Some(Arc::new(pin)),
        of: PhantomData,
    })
}

impl<T: DeserializeOwned> ObjectRef<T> {
    /// Fetches the value.
    ///
    /// # Errors
    /// [`ObjectError::Lost`] where its owner is gone or keeps it no more.
    pub async fn get(&self) -> Result<T, ObjectError> {
        let process = Process::current().map_err(|e| ObjectError::NoCluster(e.to_string()))?;
        let bytes = match process.objects.get(self.id) {
            Some(bytes) => bytes,
            None => {
                let (id, owner) = (self.id, self.owner);
                let fetching = {
                    let process = process.clone();
                    process
                        .wire
                        .clone()
                        .spawn(async move { fetch(&process.endpoint, owner, id).await })
                };
                fetching.await.map_err(|e| ObjectError::Lost {
                    object: id.to_string(),
                    owner,
                    why: e.to_string(),
                })??
            }
        };
        decode(&bytes).map_err(|e| ObjectError::Codec(e.to_string()))
    }
}

impl<T> ObjectRef<T> {
    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Clone for ObjectRef<T> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            owner: self.owner,
            len: self.len,
            pin: self.pin.clone(),
            of: PhantomData,
        }
    }
}

impl<T> fmt::Debug for ObjectRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}, {} bytes", self.id, self.owner, self.len)
    }
}

impl<T> Serialize for ObjectRef<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.id, self.owner, self.len).serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for ObjectRef<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (id, owner, len) = Deserialize::deserialize(deserializer)?;
        Ok(Self {
            id,
            owner,
            len,
            pin: None,
            of: PhantomData,
        })
    }
}
