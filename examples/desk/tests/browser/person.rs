//! A person at the page: the desk on loopback, and a browser that is logged in.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::browser::Browser;
use crate::support::{ANNA, Service};

pub(crate) struct Person {
    browser: Browser,
    pub(crate) address: String,
    /// The node behind the address.
    node: Arc<Mutex<Router>>,
    /// The server, which ends with the test.
    _serving: JoinSet<()>,
}

impl Person {
    /// Anna at the page of a customer. `None`: there is no Chromium, and there need not be one.
    pub(crate) async fn at(service: &Service, customer: &str) -> Option<Self> {
        Some(Self::with(Browser::start().await?, service, customer).await)
    }

    /// Anna in a browser that has been started.
    pub(crate) async fn with(mut browser: Browser, service: &Service, customer: &str) -> Self {
        let node = Arc::new(Mutex::new(service.router.clone()));
        let behind = node.clone();
        let balancer = Router::new().fallback(move |request: Request| {
            let node = behind.lock().unwrap().clone();
            node.oneshot(request)
        });
        // Chromium asks for an icon of each page that names none, such as a problem.
        let balancer = balancer.route("/favicon.ico", get(()));
        let mut serving = JoinSet::new();
        let address = serve(balancer, &mut serving).await;
        browser.look(1200, 800, false).await;
        browser.open(&format!("{address}/login/{ANNA}")).await;
        browser.sees("anna at acme").await;
        let mut person = Self { browser, address, node, _serving: serving };
        person.visit(customer).await;
        person
    }

    /// Passes later requests on to another node, as a load balancer does. Open connections stay at their node.
    pub(crate) fn move_to(&self, service: &Service) {
        *self.node.lock().unwrap() = service.router.clone();
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

/// Serves on a free port of the loopback, and returns its address.
pub(crate) async fn serve(router: Router, serving: &mut JoinSet<()>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
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
