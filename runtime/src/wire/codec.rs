//! How a value becomes bytes. The only file that knows it is bincode.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::{Serialize, de::DeserializeOwned};

use super::MAX_FRAME;

/// A value that could not be written, or bytes that are not the value expected.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value refused to be serialised.
    #[error("cannot encode {type_name}: {source}")]
    Encode {
        /// The Rust type.
        type_name: &'static str,
        /// Why.
        source: bincode::error::EncodeError,
    },
    /// The bytes are not a value of this type: a peer of another build, or damage.
    #[error("cannot decode {type_name} from {len} bytes: {source}")]
    Decode {
        /// The Rust type.
        type_name: &'static str,
        /// How many bytes there were.
        len: usize,
        /// Why.
        source: bincode::error::DecodeError,
    },
    /// The value was followed by bytes that belong to nothing.
    #[error("cannot decode {type_name}: {extra} bytes are left over")]
    Trailing {
        /// The Rust type.
        type_name: &'static str,
        /// How many.
        extra: usize,
    },
}

// The limit bounds what a hostile length prefix can make the decoder reserve.
const CONFIG: Configuration<LittleEndian, Varint, Limit<MAX_FRAME>> =
    bincode::config::standard().with_limit::<MAX_FRAME>();

/// Writes `value` as bytes.
///
/// # Errors
/// [`CodecError::Encode`] where the value's own `Serialize` fails.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CodecError> {
    bincode::serde::encode_to_vec(value, CONFIG).map_err(|source| CodecError::Encode {
        type_name: std::any::type_name::<T>(),
        source,
    })
}

/// [`encode`], at the end of `bytes`.
///
/// # Errors
/// As there; what was written until then stays.
pub(super) fn encode_onto<T: Serialize + ?Sized>(
    value: &T,
    bytes: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let written = bincode::serde::encode_into_std_write(value, bytes, CONFIG);
    written.map(|_| ()).map_err(|source| CodecError::Encode {
        type_name: std::any::type_name::<T>(),
        source,
    })
}

/// Reads a value that takes all of `bytes`.
///
/// # Errors
/// [`CodecError::Decode`] or [`CodecError::Trailing`] where the bytes are something else.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let type_name = std::any::type_name::<T>();
    let (value, read) =
        bincode::serde::decode_from_slice(bytes, CONFIG).map_err(|source| CodecError::Decode {
            type_name,
            len: bytes.len(),
            source,
        })?;
    if read < bytes.len() {
        return Err(CodecError::Trailing {
            type_name,
            extra: bytes.len() - read,
        });
    }
    Ok(value)
}
