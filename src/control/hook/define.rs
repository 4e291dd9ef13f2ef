//! The `event!` macro: declares a hook event, its input and its output.
//!
//! ```text
//! event! {
//!     /// When the event happens.
//!     PreToolUse: PreToolUseInput, PreToolUseOutput, PreToolUseFields;
//!     input { tool_name: String, }        required: without one of these the hook fails
//!     may { duration_ms: u64, }           optional: left in `extra` when the type does not fit
//!     output { additional_context: String, updated_mcp: Value = "updatedMCP", }
//! }
//! ```
//!
//! Fields need a doc comment only where the name leaves something open: names are those of the wire.

macro_rules! event {
    (
        $(#[doc = $doc:expr])*
        $event:ident: $input:ident, $output:ident, $fields:ident;
        input { $($in:tt)* }
        may { $($may:tt)* }
        output { $($(#[doc = $odoc:expr])* $ofield:ident: $oty:ty $(= $wire:literal)?,)+ }
    ) => {
        $crate::control::hook::define::event! {
            @event ($($doc,)*) $event, $input, $output, $fields, { $($in)* } { $($may)* }
        }

        #[doc = concat!("`hookSpecificOutput` of a [`", stringify!($event), "`] hook.")]
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        #[allow(missing_docs, reason = "fields are named as on the wire")]
        #[non_exhaustive]
        pub struct $fields {
            $(
                $(#[doc = $odoc])*
                #[serde($(rename = $wire,)? skip_serializing_if = "Option::is_none")]
                pub $ofield: Option<$oty>,
            )+
        }

        impl $crate::control::hook::Output<$event> {
            $(
                #[doc = concat!("Sets [`", stringify!($ofield), "`](", stringify!($fields), "::", stringify!($ofield), ").")]
                ///
                $(#[doc = $odoc])*
                pub fn $ofield(mut self, value: impl Into<$oty>) -> Self {
                    self.fields.$ofield = Some(value.into());
                    self
                }
            )+
        }
    };
    (
        $(#[doc = $doc:expr])*
        $event:ident: $input:ident, $output:ident;
        input { $($in:tt)* }
        may { $($may:tt)* }
    ) => {
        $crate::control::hook::define::event! {
            @event ($($doc,)*) $event, $input, $output, NoFields, { $($in)* } { $($may)* }
        }
    };
    (
        @event ($($doc:expr,)*) $event:ident, $input:ident, $output:ident, $fields:ident,
        { $($(#[doc = $idoc:expr])* $ifield:ident: $ity:ty,)* }
        { $($(#[doc = $mdoc:expr])* $mfield:ident: $mty:ty,)* }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $event;

        impl $crate::control::hook::EventType for $event {
            const NAME: &'static str = stringify!($event);
            type Input = $input;
            type Fields = $crate::control::hook::$fields;
        }

        #[doc = concat!("Answer of a [`", stringify!($event), "`] hook.")]
        pub type $output = $crate::control::hook::Output<$event>;

        #[doc = concat!("Input of a [`", stringify!($event), "`] hook.")]
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "fields are named as on the wire")]
        #[non_exhaustive]
        pub struct $input {
            $(
                $(#[doc = $idoc])*
                pub $ifield: $ity,
            )*
            $(
                $(#[doc = $mdoc])*
                pub $mfield: Option<$mty>,
            )*
            /// The fields that all events share.
            pub common: $crate::control::hook::Common,
            /// Every other field, as it came.
            pub extra: serde_json::Map<String, serde_json::Value>,
        }

        impl serde::Serialize for $input {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(to, None)?;
                $($crate::control::fields::write(&mut map, stringify!($ifield), &self.$ifield)?;)*
                $(
                    if let Some(value) = &self.$mfield {
                        $crate::control::fields::write(&mut map, stringify!($mfield), value)?;
                    }
                )*
                self.common.write(&mut map, &[$(stringify!($ifield)),*])?;
                for (name, value) in &self.extra {
                    serde::ser::SerializeMap::serialize_entry(&mut map, name, value)?;
                }
                serde::ser::SerializeMap::end(map)
            }
        }

        impl<'de> serde::Deserialize<'de> for $input {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let mut fields = $crate::control::fields::RequestFields::read(from)?;
                Ok(Self {
                    $($ifield: fields.need(stringify!($ifield))?,)*
                    $($mfield: fields.may(stringify!($mfield)),)*
                    common: fields.common(),
                    extra: fields.rest()?,
                })
            }
        }
    };
}
pub(crate) use event;
