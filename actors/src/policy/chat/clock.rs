//! The time of now as templates ask for it, by C's `strftime`, which Python's is.
use std::ffi::CString;
use std::mem::MaybeUninit;

/// The local time of now by a format such as `%d %b %Y`.
pub(super) fn now(format: &str) -> Result<String, String> {
    let pattern = CString::new(format).map_err(|_| "a time format with a NUL in it".to_owned())?;
    if format.is_empty() {
        return Ok(String::new());
    }
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as libc::time_t);
    let mut time = MaybeUninit::<libc::tm>::uninit();
    let mut text = [0u8; 256];
    // SAFETY: both pointers are valid for the call; on success `time` is filled in.
    let known = unsafe { libc::localtime_r(&raw const seconds, time.as_mut_ptr()) };
    if known.is_null() {
        return Err("the local time is not known".into());
    }
    // SAFETY: the buffer's length is given, the pattern ends with a NUL, and `time` was filled in above.
    let length = unsafe {
        libc::strftime(
            text.as_mut_ptr().cast(),
            text.len(),
            pattern.as_ptr(),
            time.as_ptr(),
        )
    };
    if length == 0 {
        return Err(format!("the time format `{format}` gives nothing"));
    }
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}
