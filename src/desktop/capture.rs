//! Encoding profiles and stored captures.

use bytes::Bytes;

use super::Desktop;
use crate::wire::Fault;
use crate::wire::messages::desktop as msg;

impl Desktop {
    /// Grabs and encodes as asked; `default_profile` holds where the caller names none.
    pub fn screenshot(
        &self,
        params: &msg::CaptureParams,
        default_profile: &str,
    ) -> Result<(msg::Capture, Bytes), Fault> {
        let _ = (params, default_profile);
        todo!("desktop helper A")
    }
}
