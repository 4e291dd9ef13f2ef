//! A person at the page: the desk on loopback, and a browser that is logged in.

use std::ops::{Deref, DerefMut};

use tokio::task::JoinSet;

use crate::browser::Browser;
use crate::support::{ANNA, Service};

pub(crate) struct Person {
    browser: Browser,
    pub(crate) address: String,
    /// The server, which ends with the test.
    _serving: JoinSet<()>,
}

impl Person {
    /// Anna at the page of a customer. `None`: there is no Chromium, and there need not be one.
    pub(crate) async fn at(service: &Service, customer: &str) -> Option<Self> {
        let mut browser = Browser::start().await?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (router, mut serving) = (service.router.clone(), JoinSet::new());
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        browser.look(1200, 800, false).await;
        browser.open(&format!("{address}/login/{ANNA}")).await;
        browser.sees("anna at acme").await;
        let mut person = Self { browser, address, _serving: serving };
        person.visit(customer).await;
        Some(person)
    }

    /// Opens the page of a customer.
    pub(crate) async fn visit(&mut self, customer: &str) {
        let url = format!("{}/desk/{customer}", self.address);
        self.browser.open(&url).await;
        self.browser
            .until(
                "the customer",
                "document.title.endsWith('Support desk') && document.title !== 'Support desk'",
            )
            .await;
    }

    /// Writes a message and sends it by the button.
    pub(crate) async fn send(&mut self, text: &str) {
        self.browser.click("textbox", "Message").await;
        self.browser.type_text(text).await;
        self.browser.click("button", "Send").await;
    }

    /// Closes the browser, in which no script has failed.
    pub(crate) async fn leave(self) {
        assert_eq!(self.browser.errors, [""; 0]);
        self.browser.close().await;
    }
}

impl Deref for Person {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        &self.browser
    }
}

impl DerefMut for Person {
    fn deref_mut(&mut self) -> &mut Browser {
        &mut self.browser
    }
}
