//! Options that greenroom itself applies.

/// Declares a struct of options, with the default of each field.
macro_rules! with_defaults {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $( $(#[$about:meta])* pub $field:ident: $type:ty = $default:expr, )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $( $(#[$about])* #[serde(with = "super::setting")] pub $field: $type, )*
        }

        impl super::setting::Setting for $name {
            type Json = Self;

            fn to_json(&self) -> Self {
                self.clone()
            }

            fn from_json(json: Self) -> Self {
                json
            }

            fn cut(&mut self) {
                $( super::setting::Setting::cut(&mut self.$field); )*
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }
    };
}

pub(super) mod limits;
pub(super) mod process;
pub(super) mod recovery;
pub(super) mod restart;
pub(super) mod setting;
pub(super) mod store;
pub(super) mod timeouts;
pub(super) mod trace;
