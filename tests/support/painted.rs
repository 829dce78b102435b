//! Windows of one colour, drawn by the test itself so that it knows every pixel.

use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    AtomEnum, ChangeWindowAttributesAux, ConnectionExt, CreateWindowAux, PropMode, Window,
    WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

use wingman::base::Rect;

use super::TestDisplay;

/// A client of the display with windows of its own; they go when it is dropped.
pub struct Painter {
    pub connection: RustConnection,
    pub root: Window,
}

impl Painter {
    pub fn new(display: &TestDisplay) -> Self {
        let (connection, root) = display.connect();
        Self { connection, root }
    }

    /// Shows a window filled with `0xRRGGBB` and waits until the server has drawn it. It escapes a
    /// window manager when it has no title.
    pub fn window(&self, bounds: Rect, color: u32, title: Option<&str>) -> Window {
        let id = self.connection.generate_id().expect("an identifier");
        let look = CreateWindowAux::new()
            .background_pixel(color)
            .border_pixel(0)
            .override_redirect(u32::from(title.is_none()));
        self.connection
            .create_window(
                x11rb::COPY_DEPTH_FROM_PARENT,
                id,
                self.root,
                bounds.x as i16,
                bounds.y as i16,
                bounds.width as u16,
                bounds.height as u16,
                0,
                WindowClass::INPUT_OUTPUT,
                x11rb::COPY_FROM_PARENT,
                &look,
            )
            .expect("create a window");
        if let Some(title) = title {
            self.text(id, "_NET_WM_NAME", "UTF8_STRING", title.as_bytes());
        }
        self.connection.map_window(id).expect("map a window");
        self.sync();
        id
    }

    /// Sets a property of bytes.
    pub fn text(&self, window: Window, property: &str, kind: &str, value: &[u8]) {
        let (property, kind) = (self.atom(property), self.atom(kind));
        self.connection
            .change_property8(PropMode::REPLACE, window, property, kind, value)
            .expect("set a property");
        self.sync();
    }

    /// Sets a property of atoms.
    pub fn atoms(&self, window: Window, property: &str, values: &[&str]) {
        let values: Vec<u32> = values.iter().map(|name| self.atom(name)).collect();
        let property = self.atom(property);
        self.connection
            .change_property32(PropMode::REPLACE, window, property, AtomEnum::ATOM, &values)
            .expect("set a property");
        self.sync();
    }

    fn atom(&self, name: &str) -> u32 {
        let cookie = self.connection.intern_atom(false, name.as_bytes());
        cookie.expect("ask").reply().expect("an atom").atom
    }

    /// Fills a window with another colour.
    pub fn repaint(&self, window: Window, color: u32) {
        let look = ChangeWindowAttributesAux::new().background_pixel(color);
        self.connection
            .change_window_attributes(window, &look)
            .expect("set a colour");
        self.connection
            .clear_area(false, window, 0, 0, 0, 0)
            .expect("clear");
        self.sync();
    }

    /// Waits until the server has done all that was asked.
    pub fn sync(&self) {
        let cookie = self.connection.get_input_focus();
        cookie.expect("ask").reply().expect("the server answers");
    }
}
