//! Words of the CLI, as enums that keep words which this library does not know.

/// Declares enums of words. `pub enum Name or "word"` has that word as its default; `or ""` is for a field that the CLI
/// may leave out.
macro_rules! words {
    ($(
        $(#[$doc:meta])*
        pub enum $name:ident $(or $default:literal)? {
            $( $(#[$about:meta])* $variant:ident = $word:literal, )*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(
                $(#[$about])*
                #[doc = concat!("\n`", $word, "`")]
                $variant,
            )*
            /// A word that this library does not know, as the CLI spells it.
            Other(String),
        }

        impl $name {
            /// The words that this library knows.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word, as the CLI spells it.
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $word, )*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $( $word => Self::$variant, )*
                    _ => Self::Other(word),
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                Self::from(word.to_owned())
            }
        }

        $( impl Default for $name {
            fn default() -> Self {
                Self::from($default)
            }
        } )?

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer).map(Self::from)
            }
        }

        $crate::wire::lenient::by_serde!($name);
    )*};
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(unreachable_pub, reason = "the macro makes public types")]

    words! {
        /// A word.
        pub enum Word or "" {
            Yes = "yes",
            /// Documented.
            NotYet = "not-yet",
        }
    }

    #[test]
    fn words_are_read_and_written_as_the_cli_spells_them() {
        let read = |json: &str| serde_json::from_str::<Word>(json).unwrap();
        assert_eq!((read(r#""not-yet""#), read(r#""no""#)), (Word::NotYet, Word::Other("no".into())));
        assert_eq!(serde_json::to_string(&[Word::Yes, "no".into()]).unwrap(), r#"["yes","no"]"#);
        assert_eq!((Word::from("yes"), Word::NotYet.to_string()), (Word::Yes, "not-yet".to_owned()));
        assert_eq!((Word::ALL, Word::default().as_str()), (&[Word::Yes, Word::NotYet][..], ""));
        assert!(serde_json::from_str::<Word>("3").is_err());
    }
}
