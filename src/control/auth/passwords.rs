//! argon2id, a bounded number at once and off the asynchronous threads.

use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};

use super::Auth;
use crate::base::Secret;
use crate::wire::Fault;

/// argon2id runs at once (19 MiB each). More wait.
pub(super) const HASHES_AT_ONCE: usize = 2;

impl Auth {
    pub(super) async fn hash(&self, password: Secret) -> Result<String, Fault> {
        self.heavy(move || {
            Argon2::default()
                .hash_password(password.expose().as_bytes())
                .map(|hash| hash.to_string())
                .map_err(|error| Fault::internal(format!("hash a password: {error}")))
        })
        .await?
    }

    /// Compares with a stored hash; without one the same time passes and the answer is no.
    pub(super) async fn verify(
        &self,
        hash: Option<String>,
        password: Secret,
    ) -> Result<bool, Fault> {
        let Some(hash) = hash else {
            self.hash(password).await?;
            return Ok(false);
        };
        self.heavy(move || {
            let parsed = PasswordHash::new(&hash)
                .map_err(|error| Fault::internal(format!("read a password hash: {error}")))?;
            let verdict = Argon2::default().verify_password(password.expose().as_bytes(), &parsed);
            Ok(verdict.is_ok())
        })
        .await?
    }

    async fn heavy<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let permit = Arc::clone(&self.hashing).acquire_owned().await;
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        })
        .await
        .map_err(|error| Fault::internal(format!("hash a password: {error}")))
    }
}
