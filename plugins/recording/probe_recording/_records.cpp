// Ordinary records of a dump.json, read into columns many times as fast as by Python.
//
// scan(text, at) -> (end, names, begins, ends, counts, places, place, kinds, dtypes, dtype, shapes, shape, grads,
//                    types, texts, numbers, checksums, data_names)
//
// `text` holds the bytes of the file as Latin-1, `at` is the place of the name of a member of the object "data". Members are
// read as long as each is an ordinary record that another member follows; `end` is the place of the name of the first that
// is not. A record is ordinary if Python's json and reading/leaves.py accept it and its values are tensors with plain
// fields, null, and scalars of the types int, float, bool and str. Everything else, mistakes included, is left to Python,
// so that each message and each rare rule exists once. The columns are those of probe_core.model.columns, with codes of
// the tables that are returned with them.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#if !defined(__cpp_lib_to_chars)
#error "this needs a standard library that reads and writes floating-point numbers"
#endif

namespace {

using std::string;
using std::string_view;

constexpr int MAX_DEPTH = 50;           // of containers; deeper ones are left to Python
constexpr size_t MAX_MEMBERS = 64;      // of an object whose names are compared with each other
constexpr double MAX_EXACT = 9007199254740992.0;  // 2**53
constexpr int MAX_DIMENSIONS = 32;

enum Type : uint8_t { NONE, FLOAT, INTEGER, BOOLEAN, TEXT };
enum Kind : uint8_t { TENSOR, SCALAR, EMPTY };
enum Side : uint8_t { INPUT, PARAMETERS, OUTPUT };

struct Field {
    string_view name;
    Side side;
};
constexpr Field FIELDS[] = {
    {"input_args", INPUT}, {"input_kwargs", INPUT}, {"input", INPUT}, {"parameters", PARAMETERS}, {"output", OUTPUT}};
constexpr string_view RANKS[] = {"src", "dst", "group_src", "group_dst"};

// A table of texts, which columns refer to by their codes.
class Table {
  public:
    int32_t code(string_view text) {
        auto found = codes_.find(string(text));
        if (found != codes_.end()) return found->second;
        codes_.emplace(string(text), static_cast<int32_t>(items_.size()));
        items_.emplace_back(text);
        return static_cast<int32_t>(items_.size()) - 1;
    }
    const std::vector<string> &items() const { return items_; }

  private:
    std::unordered_map<string, int32_t> codes_;
    std::vector<string> items_;
};

struct Statistic {
    Type type = NONE;
    double number = 0.0;
};

// The columns of all values, and of all records. -1 in `checksum` and `data_name` means None.
struct Columns {
    Table places, dtypes, shapes, texts, checksums, data_names;
    std::vector<int32_t> place, dtype, shape, checksum, data_name;
    std::vector<uint8_t> kind, type;
    std::vector<int8_t> grad;
    std::vector<double> number;
    std::vector<string> names;
    std::vector<int64_t> begin, end;
    std::vector<int32_t> count;

    void truncate(size_t lines) {
        for (auto *column : {&place, &dtype, &shape, &checksum, &data_name}) column->resize(lines);
        kind.resize(lines);
        grad.resize(lines);
        type.resize(4 * lines);
        number.resize(4 * lines);
    }
};

uint32_t crc32(string_view text) {
    uint32_t sum = 0xffffffffu;
    for (unsigned char byte : text) {
        sum ^= byte;
        for (int bit = 0; bit < 8; bit++) sum = (sum >> 1) ^ (0xedb88320u & (0u - (sum & 1)));
    }
    return ~sum;
}

// A finite number as Python's str() writes it; false if it takes an exponent.
bool float_text(double value, string &out) {
    char digits[64];
    double size = value < 0 ? -value : value;
    if (size != 0.0 && (size < 1e-4 || size >= 1e16)) return false;
    auto done = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed);
    out.assign(digits, done.ptr);
    if (out.find('.') == string::npos) out += ".0";
    return true;
}

class Scanner {
  public:
    Scanner(const char *data, size_t size) : data_(data), size_(size) {}

    // Read members from `at` on; return the place of the first that was not read.
    size_t scan(size_t at, Columns &columns) {
        out_ = &columns;
        at_ = at;
        while (true) {
            size_t start = at_, lines = columns.place.size();
            if (!member()) {
                columns.truncate(lines);
                return start;
            }
        }
    }

  private:
    const char *data_;
    size_t size_, at_ = 0;
    Columns *out_ = nullptr;
    string path_;

    bool blank() {
        while (at_ < size_ && (data_[at_] == ' ' || data_[at_] == '\n' || data_[at_] == '\r' || data_[at_] == '\t')) at_++;
        return at_ < size_;
    }
    bool take(char expected) {
        if (!blank() || data_[at_] != expected) return false;
        at_++;
        return true;
    }
    bool next_is(char expected) { return blank() && data_[at_] == expected; }
    bool take_word(string_view word) {
        if (size_ - at_ < word.size() || string_view(data_ + at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    // A text of printable ASCII without escapes.
    bool text(string_view &found) {
        if (!take('"')) return false;
        size_t start = at_;
        for (; at_ < size_; at_++) {
            unsigned char c = data_[at_];
            if (c == '"') {
                found = {data_ + start, at_ - start};
                at_++;
                return true;
            }
            if (c < 0x20 || c >= 0x7f || c == '\\') return false;
        }
        return false;
    }

    // A number by the grammar of JSON, or NaN or an infinity.
    bool number(Statistic &found, string_view &written) {
        size_t start = at_;
        bool is_whole = true;
        auto digits = [this] {
            size_t first = at_;
            while (at_ < size_ && data_[at_] >= '0' && data_[at_] <= '9') at_++;
            return at_ > first;
        };
        if (take_word("NaN")) {
            found = {FLOAT, std::numeric_limits<double>::quiet_NaN()};
            return true;
        }
        bool is_negative = take_word("-");
        if (take_word("Infinity")) {
            double infinity = std::numeric_limits<double>::infinity();
            found = {FLOAT, is_negative ? -infinity : infinity};
            return true;
        }
        size_t first = at_;
        if (!digits() || (data_[first] == '0' && at_ - first > 1)) return false;
        if (take_word(".")) {
            is_whole = false;
            if (!digits()) return false;
        }
        if (at_ < size_ && (data_[at_] == 'e' || data_[at_] == 'E')) {
            is_whole = false;
            at_++;
            if (at_ < size_ && (data_[at_] == '+' || data_[at_] == '-')) at_++;
            if (!digits()) return false;
        }
        if (at_ == size_) return false;  // it may go on in the next part of the file
        written = {data_ + start, at_ - start};
        auto done = std::from_chars(data_ + start, data_ + at_, found.number);
        if (done.ec != std::errc() || done.ptr != data_ + at_) return false;
        found.type = is_whole ? INTEGER : FLOAT;
        if (is_whole && (found.number >= MAX_EXACT || found.number <= -MAX_EXACT)) return false;
        if (is_whole) found.number += 0.0;  // -0 is the integer 0
        return true;
    }

    // A number, a truth value or null.
    bool statistic(Statistic &found) {
        string_view written;
        if (!blank()) return false;
        if (take_word("null")) found = {};
        else if (take_word("true")) found = {BOOLEAN, 1.0};
        else if (take_word("false")) found = {BOOLEAN, 0.0};
        else return number(found, written);
        return true;
    }

    // Any value, which is not needed.
    bool skip(int depth) {
        if (depth > MAX_DEPTH || !blank()) return false;
        string_view name;
        if (data_[at_] == '"') return text(name);
        if (take('[')) {
            if (take(']')) return true;
            do {
                if (!skip(depth + 1)) return false;
            } while (take(','));
            return take(']');
        }
        if (take('{')) {
            if (take('}')) return true;
            do {
                if (!text(name) || !take(':') || !skip(depth + 1)) return false;
            } while (take(','));
            return take('}');
        }
        Statistic ignored;
        return statistic(ignored);
    }

    bool shape(string &found) {
        found.clear();
        if (!take('[')) return false;
        if (take(']')) return true;
        int count = 0;
        do {
            Statistic size;
            string_view written;
            if (!blank() || !number(size, written) || size.type != INTEGER || size.number < 0 || written[0] == '-')
                return false;
            if (++count > MAX_DIMENSIONS) return false;
            if (!found.empty()) found += ',';
            found += written;
        } while (take(','));
        return take(']');
    }

    void add(Side side, Kind kind, string_view dtype, string_view shape, int8_t grad, const Statistic *four,
             int32_t checksum, int32_t data_name) {
        Columns &out = *out_;
        out.place.push_back(out.places.code(string(1, static_cast<char>('0' + side)) + path_));
        out.kind.push_back(kind);
        out.dtype.push_back(out.dtypes.code(dtype));
        out.shape.push_back(out.shapes.code(shape));
        out.grad.push_back(grad);
        out.checksum.push_back(checksum);
        out.data_name.push_back(data_name);
        for (int i = 0; i < 4; i++) {
            out.type.push_back(four[i].type);
            out.number.push_back(four[i].number);
        }
    }

    // A leaf whose opening bracket and first name, "type", are read.
    bool leaf(Side side) {
        string_view type, dtype, data_name, checksum, name;
        string sizes;
        Statistic four[4], value;
        bool has_dtype = false, has_shape = false, has_value = false, has_checksum = false, has_data = false;
        string_view written, words;
        int8_t grad = -1;
        if (!take(':') || !text(type)) return false;
        while (take(',')) {
            if (!text(name) || !take(':')) return false;
            if (name == "dtype") {
                if (!text(dtype)) return false;
                has_dtype = true;
            } else if (name == "shape") {
                if (!shape(sizes)) return false;
                has_shape = true;
            } else if (name == "Max" || name == "Min" || name == "Mean" || name == "Norm") {
                int place = name == "Max" ? 0 : name == "Min" ? 1 : name == "Mean" ? 2 : 3;
                if (!statistic(four[place])) return false;
            } else if (name == "requires_grad") {
                Statistic truth;
                if (!statistic(truth) || (truth.type != NONE && truth.type != BOOLEAN)) return false;
                grad = truth.type == NONE ? -1 : static_cast<int8_t>(truth.number);
            } else if (name == "md5") {
                if (!text(checksum)) return false;
                has_checksum = true;
            } else if (name == "data_name") {
                if (!text(data_name)) return false;
                has_data = true;
            } else if (name == "value") {
                if (!blank()) return false;
                has_value = true;
                if (data_[at_] == '"') {
                    value.type = TEXT;
                    if (!text(words)) return false;
                } else if (data_[at_] == '-' || (data_[at_] >= '0' && data_[at_] <= '9')) {
                    if (!number(value, written)) return false;
                } else if (!statistic(value)) {
                    return false;
                }
            } else if (name == "type" || !skip(0)) {
                return false;
            }
        }
        if (!take('}')) return false;
        if (!has_dtype) return has_value && scalar(side, type, value, written, words);
        int32_t data = -1;
        if (has_data && !data_name.empty() && data_name != "-1") {
            if (data_name.find_first_of("/\\") != string_view::npos || data_name == "." || data_name == "..") return false;
            data = out_->data_names.code(data_name);
        }
        add(side, TENSOR, dtype, has_shape ? "[" + sizes : "[", grad, four, has_checksum ? out_->checksums.code(checksum) : -1,
            data);
        return true;
    }

    bool scalar(Side side, string_view type, Statistic value, string_view written, string_view words) {
        string_view name = path_;
        name = name.substr(name.rfind('.') + 1);
        for (string_view rank : RANKS)
            if (name == rank) return false;
        string shown;
        if (type == "int" && value.type == INTEGER) {
            shown = value.number == 0 ? string_view("0") : written;
        } else if (type == "float" && value.type == FLOAT) {
            if (value.number - value.number != 0 || !float_text(value.number, shown)) return false;
        } else if (type == "bool" && value.type == BOOLEAN) {
            shown = value.number ? "True" : "False";
        } else if (type == "str" && value.type == TEXT) {
            shown = words;
        } else {
            return false;
        }
        if (value.type == BOOLEAN || value.type == TEXT) value = {TEXT, static_cast<double>(out_->texts.code(shown))};
        Statistic four[] = {value, value, value, value};
        char sum[9];
        snprintf(sum, sizeof sum, "%08x", crc32(shown));
        add(side, SCALAR, "<class '" + string(type) + "'>", "s", -1, four, out_->checksums.code(sum), -1);
        return true;
    }

    bool value(Side side, int depth) {
        if (depth > MAX_DEPTH || !blank()) return false;
        size_t length = path_.size();
        if (take('[')) {
            if (take(']')) return true;
            for (int number = 0;; number++) {
                if (length) path_ += '.';
                path_ += std::to_string(number);
                if (!value(side, depth + 1)) return false;
                path_.resize(length);
                if (!take(',')) return take(']');
            }
        }
        if (take('{')) {
            if (take('}')) return true;
            std::vector<string_view> names;
            while (true) {
                string_view name;
                if (!text(name)) return false;
                if (name == "type") return names.empty() && leaf(side);
                if (name == "class_type" || name.empty() || names.size() == MAX_MEMBERS) return false;
                for (string_view other : names)
                    if (other == name) return false;
                names.push_back(name);
                if (!take(':')) return false;
                if (length) path_ += '.';
                path_ += name;
                if (!value(side, depth + 1)) return false;
                path_.resize(length);
                if (!take(',')) return take('}');
            }
        }
        if (!take_word("null")) return false;
        Statistic four[4];
        add(side, EMPTY, "None", "n", -1, four, -1, -1);
        return true;
    }

    // A name, a record, and the comma behind it.
    bool member() {
        Columns &out = *out_;
        size_t lines = out.place.size();
        string_view name;
        if (!text(name) || !take(':') || !blank()) return false;
        if (name.size() >= 6 && name.substr(name.size() - 6) == ".debug") return false;
        if (name.find("parameters_grad") != string_view::npos) return false;
        size_t begin = at_;
        if (!take('{')) return false;
        int last = -1;
        std::vector<string_view> others;
        if (!take('}')) {
            do {
                string_view field;
                if (!text(field) || !take(':')) return false;
                int place = 0;
                while (place < 5 && FIELDS[place].name != field) place++;
                if (place == 5) {
                    if (!skip(0)) return false;
                    continue;
                }
                if (place <= last) return false;  // Python reads fields in their own order
                last = place;
                path_.clear();
                if (!value(FIELDS[place].side, 1)) return false;
            } while (take(','));
            if (!take('}')) return false;
        }
        size_t end = at_;
        if (!take(',') || !next_is('"')) return false;
        out.names.emplace_back(name);
        out.begin.push_back(begin);
        out.end.push_back(end);
        out.count.push_back(static_cast<int32_t>(out.place.size() - lines));
        return true;
    }
};

template <typename T>
PyObject *bytes_of(const std::vector<T> &column) {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char *>(column.data()), column.size() * sizeof(T));
}

PyObject *list_of(const std::vector<string> &items) {
    PyObject *list = PyList_New(items.size());
    for (size_t i = 0; list && i < items.size(); i++) {
        PyObject *item = PyUnicode_FromStringAndSize(items[i].data(), items[i].size());
        if (!item) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, item);
    }
    return list;
}

PyObject *scan(PyObject *, PyObject *args) {
    PyObject *text;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "Un:scan", &text, &at)) return nullptr;
    if (PyUnicode_KIND(text) != PyUnicode_1BYTE_KIND || at < 0 || at > PyUnicode_GET_LENGTH(text)) {
        PyErr_SetString(PyExc_ValueError, "scan takes a text of Latin-1 and a place in it");
        return nullptr;
    }
    Columns columns;
    Scanner scanner(reinterpret_cast<const char *>(PyUnicode_1BYTE_DATA(text)), PyUnicode_GET_LENGTH(text));
    Py_ssize_t end = scanner.scan(at, columns);
    return Py_BuildValue(
        "nNNNNNNNNNNNNNNNNNNN", end, list_of(columns.names), bytes_of(columns.begin), bytes_of(columns.end),
        bytes_of(columns.count), list_of(columns.places.items()), bytes_of(columns.place), bytes_of(columns.kind),
        list_of(columns.dtypes.items()), bytes_of(columns.dtype), list_of(columns.shapes.items()), bytes_of(columns.shape),
        bytes_of(columns.grad), bytes_of(columns.type), list_of(columns.texts.items()), bytes_of(columns.number),
        list_of(columns.checksums.items()), bytes_of(columns.checksum), list_of(columns.data_names.items()),
        bytes_of(columns.data_name));
}

PyMethodDef METHODS[] = {{"scan", scan, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_records", nullptr, -1, METHODS, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__records(void) { return PyModule_Create(&MODULE); }
