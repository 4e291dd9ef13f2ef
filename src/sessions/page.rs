//! Pages of lists.

/// A page of a list.
///
/// ```
/// use greenroom::sessions::Page;
///
/// let third = Page::first(50).after(100);
/// assert_eq!((third.offset, third.limit), (100, Some(50)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Number of items to skip.
    pub offset: usize,
    /// Most items to return; `None` for all.
    pub limit: Option<usize>,
}

impl Page {
    /// The whole list.
    pub const ALL: Page = Page { offset: 0, limit: None };

    /// The first `limit` items.
    pub fn first(limit: usize) -> Self {
        Self { offset: 0, limit: Some(limit) }
    }

    /// Skips the first `offset` items.
    #[must_use]
    pub fn after(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    pub(crate) fn end(self) -> usize {
        self.limit.map_or(usize::MAX, |limit| self.offset.saturating_add(limit))
    }

    pub(crate) fn of<I: IntoIterator>(self, items: I) -> std::iter::Take<std::iter::Skip<I::IntoIter>> {
        items.into_iter().skip(self.offset).take(self.limit.unwrap_or(usize::MAX))
    }
}
