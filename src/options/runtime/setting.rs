//! The types of options that greenroom itself applies: their form in JSON, and their bounds.

use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::store::StoreFlush;

/// Counts as "for ever": ten years.
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The type of an option.
pub(crate) trait Setting: Sized {
    type Json: Serialize + DeserializeOwned;

    fn to_json(&self) -> Self::Json;
    fn from_json(json: Self::Json) -> Self;

    /// Cuts times that a clock cannot add.
    fn cut(&mut self) {}
}

/// A number of milliseconds.
impl Setting for Duration {
    type Json = u64;

    fn to_json(&self) -> u64 {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX)
    }

    fn from_json(millis: u64) -> Self {
        Self::from_millis(millis)
    }

    fn cut(&mut self) {
        *self = (*self).min(FOREVER);
    }
}

impl<T: Setting> Setting for Option<T> {
    type Json = Option<T::Json>;

    fn to_json(&self) -> Self::Json {
        self.as_ref().map(T::to_json)
    }

    fn from_json(json: Self::Json) -> Self {
        json.map(T::from_json)
    }

    fn cut(&mut self) {
        self.iter_mut().for_each(T::cut);
    }
}

impl<T: Setting> Setting for Vec<T> {
    type Json = Vec<T::Json>;

    fn to_json(&self) -> Self::Json {
        self.iter().map(T::to_json).collect()
    }

    fn from_json(json: Self::Json) -> Self {
        json.into_iter().map(T::from_json).collect()
    }

    fn cut(&mut self) {
        self.iter_mut().for_each(T::cut);
    }
}

/// Types whose JSON is that of serde.
macro_rules! by_serde {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            type Json = Self;

            fn to_json(&self) -> Self {
                self.clone()
            }

            fn from_json(json: Self) -> Self {
                json
            }
        }
    )*};
}

by_serde!(u32, usize, String, PathBuf, StoreFlush);

pub(crate) fn serialize<T: Setting, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.to_json().serialize(serializer)
}

pub(crate) fn deserialize<'de, T: Setting, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::Json::deserialize(deserializer).map(T::from_json)
}
