//! Declares bodies of messages that make no sense without some of their fields.

/// Declares a struct. Fields under `read` must have their shape, or the message is
/// [`Message::Other`](crate::Message::Other). All other fields are read leniently.
macro_rules! message {
    (
        $(#[$doc:meta])*
        $name:ident {
            read { $( $(#[$read_attr:meta])* $read:ident: $read_type:ty, )* }
            $( $(#[$about:meta])* $field:ident: $type:ty $(= $key:literal)?, )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, serde::Deserialize)]
        #[allow(missing_docs, reason = "fields are named as on the wire")]
        #[non_exhaustive]
        pub struct $name {
            $( $(#[$read_attr])* pub $read: $read_type, )*
            $(
                $(#[$about])*
                #[serde(default, deserialize_with = "crate::wire::lenient::or_default")]
                $( #[serde(rename = $key)] )?
                pub $field: $type,
            )*
        }
    };
}
pub(super) use message;
