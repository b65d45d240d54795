/* The JSON of groups of values; included in the middle of _tally.cpp. */

constexpr int MAX_DEPTH = 8;
constexpr Py_ssize_t MAX_ITEMS = 1000;

/* A writer of the JSON of values. Its methods return 1, 0 for a value that is left to Python, -1 with an exception. */
struct Writer {
    std::string out;
    Known known;
    PyObject *plain, *by_key;
    Measured measured;
    Py_ssize_t items_left = MAX_ITEMS;

    bool is_tensor(PyObject *value) const {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(plain); i++)
            if ((PyObject *)Py_TYPE(value) == PyTuple_GET_ITEM(plain, i)) return true;
        return false;
    }

    /* Return true if nothing but a tensor that is not ordinary can keep a value from being written. */
    bool can_add(PyObject *value, int depth = 0) {
        if (value == Py_None || PyBool_Check(value) || PyFloat_CheckExact(value) || is_tensor(value)) return true;
        if (PyLong_CheckExact(value)) {
            int overflow;
            PyLong_AsLongLongAndOverflow(value, &overflow);
            return !overflow;
        }
        if (PyUnicode_CheckExact(value)) return is_plain_text(value);
        if (!(PyTuple_CheckExact(value) || PyList_CheckExact(value)) || depth >= MAX_DEPTH) return false;
        Py_ssize_t size = PySequence_Fast_GET_SIZE(value);
        if ((items_left -= size + 1) < 0) return false;
        for (Py_ssize_t i = 0; i < size; i++)
            if (!can_add(PySequence_Fast_GET_ITEM(value, i), depth + 1)) return false;
        return true;
    }

    /* Return true for printable ASCII without quotes and backslashes, which JSON holds unchanged. */
    static bool is_plain_text(PyObject *text) {
        if (!PyUnicode_IS_COMPACT_ASCII(text)) return false;
        const Py_UCS1 *data = PyUnicode_1BYTE_DATA(text);
        for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); i++)
            if (data[i] < ' ' || data[i] > '~' || data[i] == '"' || data[i] == '\\') return false;
        return true;
    }

    void add_text(PyObject *text) {
        out += '"';
        out.append((const char *)PyUnicode_1BYTE_DATA(text), (size_t)PyUnicode_GET_LENGTH(text));
        out += '"';
    }

    /* Add a value; another thread may have changed the list that holds it since `can_add` saw it. */
    int add(PyObject *value) {
        if (is_tensor(value)) return add_tensor(out, value, known, measured);
        if (value == Py_None) {
            out += "null";
            return 1;
        }
        if (!PyUnicode_CheckExact(value) && !PyLong_CheckExact(value) && !PyFloat_CheckExact(value) &&
            !PyBool_Check(value))
            return PyTuple_CheckExact(value) || PyList_CheckExact(value) ? add_items(value) : 0;
        if (!can_add(value)) return 0;
        out += "{\"type\": \"";
        out += Py_TYPE(value)->tp_name;
        out += "\", \"value\": ";
        if (PyBool_Check(value))
            out += value == Py_True ? "true" : "false";
        else if (PyLong_CheckExact(value))
            add_whole(out, PyLong_AsLongLong(value));
        else if (PyFloat_CheckExact(value))
            add_number(out, PyFloat_AS_DOUBLE(value));
        else
            add_text(value);
        out += '}';
        return 1;
    }

    /* Add a value and hold it meanwhile, because other threads run while a tensor is measured. */
    int add_held(PyObject *value) {
        Py_INCREF(value);
        int result;
        try {
            result = add(value);
        } catch (...) {
            Py_DECREF(value);
            throw;
        }
        Py_DECREF(value);
        return result;
    }

    int add_items(PyObject *sequence) {
        out += '[';
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); i++) {
            if (i) out += ", ";
            int result = add_held(PySequence_Fast_GET_ITEM(sequence, i));
            if (result <= 0) return result;
        }
        out += ']';
        return 1;
    }

    int can_add_members(PyObject *dict) {
        PyObject *key, *value;
        for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &key, &value);) {
            if (!PyUnicode_CheckExact(key) || !is_plain_text(key) || !can_add(value)) return 0;
            int is_special = value == Py_None ? 0 : PySequence_Contains(by_key, key);
            if (is_special) return is_special < 0 ? -1 : 0;
        }
        return 1;
    }

    int add_members(PyObject *dict) {
        PyObject *key, *value;
        bool is_first = true;
        out += '{';
        for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &key, &value); is_first = false) {
            if (!is_first) out += ", ";
            add_text(key);
            out += ": ";
            int result = add_held(value);
            if (result <= 0) return result;
        }
        out += '}';
        return 1;
    }

    int add_group(PyObject *group) {
        if (PyDict_CheckExact(group)) {
            int result = can_add_members(group);
            return result <= 0 ? result : add_members(group);
        }
        if (!(PyTuple_CheckExact(group) || PyList_CheckExact(group)) || !can_add(group)) return 0;
        return add_items(group);
    }
};

/* Return a new text; NULL with an exception. */
PyObject *text_of(const std::string &out) { return PyUnicode_FromStringAndSize(out.data(), (Py_ssize_t)out.size()); }

/* Write each group of a tuple; return 1 with the texts in `texts`, 0 if Python has to, -1 with an exception. */
int encode_groups(Writer &writer, PyObject *groups, PyObject *texts) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(groups); i++) {
        writer.out.clear();
        int result = writer.add_group(PyTuple_GET_ITEM(groups, i));
        if (result <= 0) return result;
        PyObject *text = text_of(writer.out);
        if (text == NULL) return -1;
        PyTuple_SET_ITEM(texts, i, text);
    }
    return 1;
}

/* Set the items of a list to the texts of tensors, or None; return false with an exception. */
bool encode_tensors(Writer &writer, PyObject *values, PyObject *texts) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(texts); i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        writer.out.clear();
        int result = writer.is_tensor(value) ? writer.add(value) : 0;
        PyObject *text = result > 0 ? text_of(writer.out) : result ? NULL : Py_NewRef(Py_None);
        if (text == NULL) return false;
        PyList_SET_ITEM(texts, i, text);
    }
    return true;
}

PyObject *encode_each(PyObject *, PyObject *const *arguments, Py_ssize_t given) {
    Writer writer;
    if (!read_known(arguments, given, 7, writer.known)) return NULL;
    if (!PyTuple_Check(arguments[6])) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of classes");
        return NULL;
    }
    writer.plain = arguments[6], writer.by_key = NULL;
    PyObject *values = PySequence_Tuple(arguments[0]);
    if (values == NULL) return NULL;
    PyObject *texts = PyList_New(PyTuple_GET_SIZE(values));
    bool is_complete = false;
    try {
        is_complete = texts && encode_tensors(writer, values, texts);
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    }
    Py_DECREF(values);
    if (is_complete) return texts;
    Py_XDECREF(texts);
    return NULL;
}

PyObject *encode_all(PyObject *, PyObject *const *arguments, Py_ssize_t given) {
    Writer writer;
    if (!read_known(arguments, given, 8, writer.known)) return NULL;
    if (!PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[6])) {
        PyErr_SetString(PyExc_TypeError, "expected tuples of groups and of classes");
        return NULL;
    }
    writer.plain = arguments[6], writer.by_key = arguments[7];
    PyObject *texts = PyTuple_New(PyTuple_GET_SIZE(arguments[0]));
    if (texts == NULL) return NULL;
    int result;
    try {
        result = encode_groups(writer, arguments[0], texts);
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
        result = -1;
    }
    if (result > 0) return texts;
    Py_DECREF(texts);
    if (result < 0) return NULL;
    Py_RETURN_NONE;
}
